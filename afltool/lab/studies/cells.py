"""The folder of a study, and its cells: each a run, or a baseline on the rows and clients of one.

A cell has the folder of its run or its baseline, under the digest of its inputs and options. This
is the one place where a study knows the baselines; they are imported where a cell is one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unicodedata import category

from ...errors import UsageError
from ...files.hdf5 import read_header
from ...files.locks import alone
from ...heads import OPTIONS, make_options
from ...heads.options import HeadOptions
from ...inputs import read_json
from ...options.base import by_name, fields_of, flag, key_of
from ...options.common import FROZEN_FILE
from ...options.features import ExtractOptions, default_store
from ...options.partition import PartitionOptions
from ...plugins import need_torch
from ...runs.config import FIELDS, TABLE, HereOptions, RunConfig
from ...runs.folder import RunFolder
from ...runs.plan import SPLITS, Step, features, option_words, partition
from ...runs.step_cache import StepCache
from ...runs.validation import check_before, check_rows, checked_head
from ...stages.stage import Stage
from ...values.arrays import Digest, file_sha256, file_state

if TYPE_CHECKING:
    from ...plugins import Registry
    from ..baselines.base import Method
    from ..baselines.settings import Settings


class StudyFolder:
    STUDY = "study.json"  # the study as it was given: its tree of options and how it is shown
    CELLS = "cells"
    SHARED = "shared"  # features and partitions that baselines read
    STEPS = "steps"  # until its cells are done: what a group shares, by what it is made of
    FAILED = "failed.txt"  # in a cell: why it has no result
    BEGUN = "begun.txt"  # in a cell that is under way: how many have begun it, and who does it

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.study, self.jobs = self.root / self.STUDY, self.root / RunFolder.SLURM

    def cell(self, name: str) -> Path:
        return self.root / self.CELLS / name

    def shared(self, name: str, key: str) -> Path:
        return self.root / self.SHARED / f"{name}-{key}.h5"

    def steps(self, cell: Cell) -> Path:
        return self.root / self.STEPS / Digest().json("group", cell.group).hex()[:_KEY]

    @classmethod
    def is_one(cls, root: Path) -> bool:
        return (root / cls.STUDY).is_file()


# Keys of a study that are not options.
LABEL: Final = "label"
BASELINE: Final = "baseline"
SEED: Final = "seed"
#: Seeds, for which a result is repeated: tables average over them without being told.
SEEDS = (SEED, "partition_seed", "head_seed", "weights_seed", "participation_seed")
OF_PARTITION = {"partition", *(name for name, f in FIELDS.items() if f.part == "partition")}
#: Options on which no sum depends, beside those of the head.
SOLVING = {name for name, f in FIELDS.items() if f.part in ("solve", "evaluate")}
#: Paths, and how a run uses its machine.
NO_AXES = {"train_features", "test_features", "data_root", "store", "cache"}
NO_AXES |= {f.name for f in fields(HereOptions)}
_KEY = 16  # digits of the names of cells


@dataclass(frozen=True)
class Cell:
    """One setting of a study.

    Attributes:
        setting: the flat names and values of the study, with `label` and `baseline`.
        config: data, clients and head of a run; data and clients of a baseline.
        method: name of the baseline; None for a run.
        settings: options of the baseline.
    """

    setting: Mapping[str, Any]
    config: RunConfig
    method: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name of its method in tables: its label, its baseline or its head."""
        return str(self.setting.get(LABEL) or self.method or self.config.own.head)

    @cached_property
    def key(self) -> str:
        """The name of its folder; it is equal for equal data, options and method."""
        cls, given = OPTIONS.get(self.config.own.head, HeadOptions), self.config.given()
        names = {name: key_of(cls, name) for name in fields_of(cls)}
        settings = {names.get(k, k): _meaning(k, v) for k, v in given.items() if _counts(k)}
        settings |= _way_said(self.config.extract)
        if self.method is None and self.config.own.head == "linear":
            ridge = settings.pop("ridge", "auto")
            settings |= {} if str(ridge) in ("0", "0.0") else {"ridge": ridge}  # see `_way_said`
        own = {} if self.method is None else values(self.method, self.settings)
        name = None if self.method is None else _method_class(self.method).name
        content = [name, {k: _meaning("", v) for k, v in own.items()}, settings]
        start = name or Path(self.config.own.head).stem
        start = re.sub(r"[^A-Za-z0-9.+-]", "-", start)  # scripts have lists of these names
        return f"{start}-{Digest().json('cell', content).hex()[:_KEY]}"

    @cached_property
    def group(self) -> str:
        """What cells have in common that share sums and heads: all but clients and `solve`."""
        apart = OF_PARTITION if self.method else OF_PARTITION | {*self.config.at_solve(), *SOLVING}
        given = self.config.given().items()
        return str([self.method, {k: _meaning(k, v) for k, v in given if k not in apart}])

    def commands(self, folder: StudyFolder) -> list[list[str]]:
        lines = [step.line() for step in self.shared(folder)]
        if self.method is not None:
            return [*lines, self._baseline(folder).line()]
        out = str(folder.cell(self.key))
        return [*lines, ["run", *option_words(self.config.given()), "-o", out]]

    def rounds(self) -> int:
        if self.method is not None:
            return made_settings(self.method, self.settings).rounds
        return len(checked_head(self.config).schedule())

    @property
    def head(self) -> str:
        if self.method is None:
            return RunFolder.FINAL
        from ..baselines.settings import BaselineFolder

        return BaselineFolder.HEAD

    def solved(self, folder: StudyFolder, summary: Mapping[str, Any]) -> Path:
        """The head of its result, by the name that it has in every version."""
        place = RunFolder(folder.cell(self.key))
        if self.method is None:
            return place.head(len(summary["bytes_per_client"]))
        return place / self.head

    def check(self, folder: StudyFolder, here: bool, known: set[str]) -> None:
        """Refuse what would fail, as its own command does; see `runs.validation.check_before`."""
        if self.method is None:
            run = RunFolder(folder.cell(self.key))
            check_before(self.config, run, here=here, known=known)
            return
        need_torch(f"training of {self.method}")
        places = dict(zip(SPLITS, self.files(folder), strict=False))
        check_rows(self.config, places, here=here, known=known)

    def make(self, folder: StudyFolder, made: StepCache, again: bool) -> None:
        """Carry it out in its folder; ``again``: what is there is replaced."""
        if self.method is None:
            from ...runs.local import run

            out = RunFolder(run(self.config, folder.cell(self.key), overwrite=again, made=made))
            summary = read_json(out / RunFolder.SUMMARY, "a summary")
            out.remove_rounds(len(summary["bytes_per_client"]))
            return
        from ..baselines.stage import baseline

        for step in self.shared(folder):
            assert step.out is not None
            with alone(step.out):
                StepCache().carry_out(step)
        call = self._baseline(folder).call(again)
        baseline(replace(call, settings=_of_method(self.settings)))

    def files(self, folder: StudyFolder) -> tuple[Path, Path, Path]:
        """Train and test features and partition of a baseline."""
        own, extract = self.config.own, self.config.extract
        if extract is None:
            assert own.train_features is not None
            assert own.test_features is not None
            train, test = own.train_features, own.test_features
            of_rows: Any = _meaning("train_features", train)
        else:
            of_rows = {k: str(v) for k, v in extract.changed().items() if _counts(k)}
            of_rows |= _way_said(extract)
            key = Digest().json("features", of_rows).hex()[:_KEY]
            train, test = (folder.shared(split, key) for split in SPLITS)
        if own.partition is not None:
            return train, test, own.partition
        dealt = {k: _meaning(k, v) for k, v in vars(self.config.partition).items()}
        key = Digest().json("clients", [of_rows, dealt]).hex()[:_KEY]
        return train, test, folder.shared("clients", key)

    def shared(self, folder: StudyFolder) -> list[Step]:
        """The steps whose files it shares with others: features, clients of a baseline."""
        *splits, clients = self.files(folder)
        steps: list[Step] = []
        if self.config.extract is not None:
            store = self.config.extract.store or default_store()
            extract = replace(self.config.extract, store=store)
            steps = [features(extract, *one) for one in zip(SPLITS, splits, strict=True)]
        if self.method is not None and self.config.partition is not None:
            steps.append(partition(self.config.partition, splits[0], clients))
        return steps

    def _baseline(self, folder: StudyFolder) -> Step:
        from ..baselines.settings import Baseline, BaselineOptions

        assert self.method is not None
        train, test, clients = self.files(folder)
        own = {k: v for k, v in self.settings.items() if k in of_baselines()}
        options = BaselineOptions(partition=clients, test=test, **own)
        stage = Stage("baseline", BaselineOptions, Baseline, "run")
        given: dict[str, Any] = {"method": self.method, "features": train}
        return Step(stage, options, given, folder.cell(self.key), _of_method(self.settings))


def line(command: Sequence[object]) -> str:
    return shlex.join(["afltool", *map(str, command)])


def make_cell(setting: Mapping[str, Any], before: bool = False) -> Cell:
    """The cell of a setting; `UsageError` for unknown options and for contradictions.

    `seed` is that of the partition, unless that is given, and of a head or baseline that draws.
    ``before``: what it does not name is as in 0.3.
    """
    label = setting.get(LABEL)
    if any(category(c) in ("Cc", "Zl", "Zp") for c in str(label)):  # tables and pictures name it
        raise UsageError(f"a label is one line without control characters; found {label!r}")
    given = {k: v for k, v in setting.items() if k not in (LABEL, BASELINE)}
    method = setting.get(BASELINE)
    if before:
        given = by_name(OPTIONS.get(given.get("head", "linear"), HeadOptions), given)
        method = {"centralised": "centralized"}.get(str(method), method)
    if before and "train_features" not in given:
        given.setdefault("preprocess", "paper")
    if before and method is None and given.get("head", "linear") == "linear":
        given.setdefault("ridge", 0.0)
    seed = given.get(SEED)
    if seed is not None and "partition" not in given:
        given.setdefault("partition_seed", seed)
    if method is None:
        if seed is not None and draws(given):
            given.setdefault("head_seed", seed)
        given.pop(SEED, None)
        return Cell(setting, RunConfig(**given).with_absolute_paths())
    theirs = own_names(method)
    options = {theirs[k]: v for k, v in given.items() if k in theirs}
    rest = {k: v for k, v in given.items() if k not in theirs or k in OF_BOTH}
    for name in rest.keys() - OF_BOTH:
        raise UsageError(f"{flag(name)} is no option of baseline {method}, its data or clients")
    cell = Cell(setting, RunConfig(**rest).with_absolute_paths(), str(method), options)
    made_settings(str(method), options)  # refuses wrong values
    return cell


def draws(setting: Mapping[str, Any]) -> bool:
    """Whether the head of a setting, with its options, draws random numbers; no head file does."""
    head = setting.get("head", "linear")
    theirs = {f.name for f in fields(OPTIONS[head])} if head in OPTIONS else set()
    own = {k: v for k, v in setting.items() if k in theirs and k not in (*FIELDS, SEED)}
    try:
        return SEED in theirs and make_options(head, own).as_dict()[SEED] is not None
    except UsageError:  # which the cell itself is refused with
        return SEED in theirs


_OF_CLIENTS = {f.name for f in fields(PartitionOptions)} - {SEED}
#: Names of the data and the clients, for cells of runs and of baselines.
OF_BOTH: set[str] = {f.name for f in fields(ExtractOptions)} - {SEED} | _OF_CLIENTS
OF_BOTH |= {name for name, f in FIELDS.items() if f.part == TABLE}
OF_BOTH |= {"train_features", "test_features", "partition", "partition_seed", "weights_seed"}


def _way_said(extract: ExtractOptions | None) -> dict[str, str]:
    """The preprocessing as keys have it: another than ``paper``, the default when keys began."""
    if extract is None or FROZEN_FILE.path(extract.backbone) or extract.preprocess == "paper":
        return {}
    return {"preprocess": extract.preprocess}


def _counts(name: str) -> bool:
    """Whether keys have an option as it is given; the result depends on it. See `_way_said`."""
    f = FIELDS.get(name)
    return f is None or (f.in_result and name != "preprocess") or name == "each_round"


def _meaning(name: str, value: Any) -> Any:
    """A value for the digest of a cell; for a file of afltool its digest, not its path."""
    if isinstance(value, (tuple, list)):
        return [_meaning(name, one) for one in value]
    if isinstance(value, Path) or (name == "head" and value not in OPTIONS):
        return _file_meaning(str(value), str(file_state(Path(value))))
    return value


@lru_cache(maxsize=4096)
def _file_meaning(path: str, state: str) -> str:
    place = Path(path)
    if place.suffix == ".h5" and place.is_file():
        return str(read_header(place)["digest"])
    return file_sha256(place) if place.is_file() else path


def methods() -> Registry[str]:
    from ..baselines import METHODS

    return METHODS


def _method_class(method: str) -> type[Method]:
    from ..baselines import method_class

    return method_class(method)


@lru_cache
def of_baselines() -> set[str]:
    """The options of every baseline, beside those of its method."""
    from ..baselines.settings import BaselineOptions

    return {f.name for f in fields(BaselineOptions)} - {"partition", "test"}


@lru_cache
def own_names(method: str) -> dict[str, str]:
    """The options of a baseline by their names in a study: ``method_NAME`` for the partition's."""
    own = {f.name for f in fields(_method_class(method).settings_class)} | of_baselines()
    return {f"method_{name}" if name in _OF_CLIENTS else name: name for name in own}


def values(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a baseline; a preset by its values, which several papers share."""
    from ..baselines import preset_of

    preset = given.get("preset")
    theirs = {} if preset is None else preset_of(method, preset)
    return {**theirs, **{k: v for k, v in given.items() if k != "preset" or v is None}}


def made_settings(method: str, given: Mapping[str, Any]) -> Settings:
    """All settings of a baseline, its preset and defaults resolved."""
    from ..baselines import make_settings

    return make_settings(method, _of_method(given), given.get("preset"))


def _of_method(given: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k not in of_baselines()}
