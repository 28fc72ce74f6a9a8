"""The folder of a study, and its cells: each a run, or a baseline on the rows and clients of one.

A cell has the folder of its run or its baseline, under the digest of its inputs and options. This
is the one place where a study knows the baselines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final
from unicodedata import category

from ...errors import UsageError
from ...files.hdf5 import read_header
from ...heads import HEADS, make_options, options_class
from ...heads.options import HeadOptions
from ...inputs import read_json
from ...options.base import by_name, flag, get_fields, key_of
from ...options.common import FROZEN_FILE
from ...options.features import ExtractOptions, default_store
from ...plugins import require_torch
from ...runs.config import FIELDS, HERE, TABLE, RunConfig
from ...runs.folder import RunFolder
from ...runs.plan import LINK, Step, data_steps, option_words
from ...runs.step_cache import StepCache
from ...runs.summary import PRESET, plain, stage_options
from ...runs.validation import check_before, check_head, check_rows
from ...stages.stage import Stage
from ...values.arrays import Digest, file_sha256, file_state
from ..baselines import IN_FILES, get_preset, make_settings, method_class
from ..baselines import METHODS as METHODS
from ..baselines.settings import Baseline, BaselineFolder, BaselineOptions, Settings


class StudyFolder:
    STUDY = "study.json"  # the study as it was given: its tree of options and how it is shown
    CELLS = "cells"
    STEPS = "steps"  # until its cells are done: what a group shares, by what it is made of
    FAILED = "failed.txt"  # in a cell: why it has no result
    BEGUN = "begun.txt"  # in a cell that is under way: how many have begun it, and who does it

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.study, self.jobs = self.root / self.STUDY, self.root / RunFolder.SLURM

    def cell(self, name: str) -> Path:
        return self.root / self.CELLS / name

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.cell(cell.key))

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


def named(*parts: str) -> set[str]:
    """The options of these parts of a run by their flat names."""
    return {name for name, f in FIELDS.items() if f.part in parts}


OF_PARTITION = {"partition"} | named("partition")
#: Options on which no sum depends, beside those of the head.
SOLVING = named("solve", "evaluate")
GIVEN = {"train_features", "test_features"}
#: Paths, and how a run uses its machine.
NO_AXES = GIVEN | {"data_root", "store", "cache"} | named(HERE)
#: Names of the data and the clients, for cells of runs and of baselines.
OF_BOTH = GIVEN | named("extract", TABLE) | OF_PARTITION
_KEY = 16  # digits of the names of cells


@dataclass(frozen=True)
class Cell:
    """One setting of a study: a run, where it is no `BaselineCell`.

    Attributes:
        setting: the flat names and values of the study, with `label` and `baseline`.
        config: data, clients and head; of a baseline data and clients alone.
        method, settings: the name of the baseline and its own options; empty for a run.
    """

    setting: Mapping[str, Any]
    config: RunConfig
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    HEAD: ClassVar = RunFolder.FINAL  # the file of its result
    KEPT: ClassVar = "options"  # where its summary has `kept_options`

    @property
    def label(self) -> str:
        """The name of its method in tables: its label, its baseline or its head."""
        return str(self.setting.get(LABEL) or self.method or self.config.own.head)

    @cached_property
    def key(self) -> str:
        """The name of its folder; it is equal for equal data, options and method."""
        head, given = self.config.own.head, self.config.given_options()
        cls = options_class(head) if head in HEADS else HeadOptions
        names = {name: key_of(cls, name) for name in get_fields(cls)}
        settings = {names.get(k, k): _meaning(k, v) for k, v in given.items() if _counts(k)}
        content = self.content(settings | _preprocessing_key(self.config.extract))
        start = content[0] or Path(head).stem
        start = re.sub(r"[^A-Za-z0-9.+-]", "-", start)  # scripts have lists of these names
        return f"{start}-{Digest().json('cell', content).hex()[:_KEY]}"

    def content(self, settings: dict[str, Any]) -> list[Any]:
        """What its key is a digest of; ``settings``: those of the run, as keys have them."""
        if self.config.own.head == "linear":
            ridge = settings.pop("ridge", "auto")
            settings |= (
                {} if str(ridge) in ("0", "0.0") else {"ridge": ridge}
            )  # see `_preprocessing_key`
        return [None, {}, settings]

    @cached_property
    def group(self) -> str:
        """What cells have in common that share sums and heads: all but clients and `solve`."""
        given, late = self.config.given_options().items(), self.config.at_solve()
        apart = {*OF_PARTITION, *late, *SOLVING}
        return str([self.method, {k: _meaning(k, v) for k, v in given if k not in apart}])

    def options(self) -> dict[str, Any]:
        """The options of the stages and of the head, on which its result depends, defaults too."""
        found, name = self.of_stages(), self.config.own.head
        if name not in HEADS:
            return found
        options = self.config.all_head_options()
        with suppress(UsageError):  # a cell that cannot run has the options that it was given
            made = make_options(name, options)
            options = {name: getattr(made, name) for name in get_fields(type(made))}
        return found | {"head_seed" if k == SEED else k: plain(v) for k, v in options.items()}

    def of_stages(self) -> dict[str, Any]:
        parts = ("extract", "partition", "local_stats", "aggregate")
        every = stage_options(self.config).items()
        return {k: v for k, v in every if FIELDS[k].in_result and FIELDS[k].part in parts}

    def kept_options(self) -> dict[str, Any]:
        """Its options by the names that its summary has for them."""
        return {k: v for k, v in self.options().items() if k != PRESET}

    def rounds(self) -> int:
        return len(check_head(self.config).schedule())

    def get_head_path(self, folder: StudyFolder, summary: Mapping[str, Any]) -> Path:
        """The head of its result, by the name that it has in every version."""
        return folder.run(self).head(len(summary["bytes_per_client"]))

    def check(self, folder: StudyFolder, here: bool, known: set[str]) -> None:
        """Refuse what would fail, as its own command does; see `runs.validation.check_before`."""
        check_before(self.config, folder.run(self), here=here, known=known)

    def make(self, folder: StudyFolder, made: StepCache, again: bool) -> None:
        """Carry it out in its folder; ``again``: what is there is replaced."""
        from ...runs.local import run

        out = RunFolder(run(self.config, folder.cell(self.key), overwrite=again, made=made))
        summary = read_json(out / RunFolder.SUMMARY, "a summary")
        out.remove_rounds(len(summary["bytes_per_client"]))

    def commands(self, folder: StudyFolder) -> list[list[str]]:
        """What is typed to carry it out alone."""
        return [
            ["run", *option_words(self.config.given_options()), "-o", str(folder.cell(self.key))]
        ]


@dataclass(frozen=True)
class BaselineCell(Cell):
    """A baseline: its plan begins as that of a run, with data and clients; then it is one step."""

    HEAD: ClassVar = BaselineFolder.HEAD
    KEPT: ClassVar = "settings"

    def content(self, settings: dict[str, Any]) -> list[Any]:
        """A preset counts by its values, which several papers share."""
        own = {k: v for k, v in self.settings.items() if k != "preset" or v is None}
        if (preset := self.settings.get("preset")) is not None:
            own = {**get_preset(self.method, preset), **own}
        return [
            IN_FILES.get(self.method, self.method),
            {k: _meaning("", v) for k, v in own.items()},
            settings,
        ]

    def options(self) -> dict[str, Any]:
        called = {own: name for name, own in method_option_names(self.method).items()}
        return self.of_stages() | {called[k]: plain(v) for k, v in self.settings.items()}

    def kept_options(self) -> dict[str, Any]:
        return self.made().as_dict()

    def made(self) -> Settings:
        """All settings of the method, its preset and defaults resolved."""
        return make_settings(self.method, self.of_method(), self.settings.get("preset"))

    def of_method(self) -> dict[str, Any]:
        return {k: v for k, v in self.settings.items() if k not in OF_BASELINES}

    def rounds(self) -> int:
        return self.made().rounds

    def get_head_path(self, folder: StudyFolder, summary: Mapping[str, Any]) -> Path:
        return folder.cell(self.key) / self.HEAD

    def check(self, folder: StudyFolder, here: bool, known: set[str]) -> None:
        require_torch(f"training of {self.method}")
        check_rows(self.config, folder.run(self), here=here, known=known)

    def steps(self, folder: StudyFolder) -> list[Step]:
        own, place = self.config.own, folder.run(self)
        train = own.train_features or place.features("train")
        test = own.test_features or place.features("test")
        theirs = {k: v for k, v in self.settings.items() if k in OF_BASELINES}
        options = BaselineOptions(partition=own.partition or place.clients, test=test, **theirs)
        given: dict[str, Any] = {"method": self.method, "features": train}
        data = data_steps(self.config, place, train)
        last = Step(BASELINE_STAGE, options, given, place.root, self.of_method())
        return [*(one for one in data if one.stage.name != LINK), last]

    def make(self, folder: StudyFolder, made: StepCache, again: bool) -> None:
        for step in self.steps(folder):
            made.carry_out(step, again)

    def commands(self, folder: StudyFolder) -> list[list[str]]:
        return [_with_store(step).line() for step in self.steps(folder)]


def _with_store(step: Step) -> Step:
    """The same step, where cells that are carried out one by one extract images once."""
    options = step.options
    if not isinstance(options, ExtractOptions):
        return step
    return replace(step, options=replace(options, store=options.store or default_store()))


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
        head = given.get("head", "linear")
        given = by_name(options_class(head) if head in HEADS else HeadOptions, given)
        method = next((name for name, old in IN_FILES.items() if old == method), method)
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
    theirs = method_option_names(method)
    options = {theirs[k]: v for k, v in given.items() if k in theirs}
    rest = {k: v for k, v in given.items() if k not in theirs or k in OF_BOTH}
    for name in rest.keys() - OF_BOTH:
        raise UsageError(f"{flag(name)} is no option of baseline {method}, its data or clients")
    cell = BaselineCell(setting, RunConfig(**rest).with_absolute_paths(), str(method), options)
    cell.made()  # refuses wrong values
    return cell


def draws(setting: Mapping[str, Any]) -> bool:
    """Whether the head of a setting, with its options, draws random numbers; no head file does."""
    head = setting.get("head", "linear")
    theirs = {f.name for f in fields(options_class(head))} if head in HEADS else set()
    own = {k: v for k, v in setting.items() if k in theirs and k not in (*FIELDS, SEED)}
    try:
        return SEED in theirs and make_options(head, own).as_dict()[SEED] is not None
    except UsageError:  # which the cell itself is refused with
        return SEED in theirs


def _preprocessing_key(extract: ExtractOptions | None) -> dict[str, str]:
    """The preprocessing as keys have it: another than ``paper``, the default when keys began."""
    if extract is None or FROZEN_FILE.path(extract.backbone) or extract.preprocess == "paper":
        return {}
    return {"preprocess": extract.preprocess}


def _counts(name: str) -> bool:
    """Whether keys have an option as it is given; the result depends on it.

    See `_preprocessing_key`.
    """
    f = FIELDS.get(name)
    return f is None or (f.in_result and name != "preprocess") or name == "each_round"


def _meaning(name: str, value: Any) -> Any:
    """A value for the digest of a cell; for a file of afltool its digest, not its path."""
    if isinstance(value, (tuple, list)):
        return [_meaning(name, one) for one in value]
    if isinstance(value, Path) or (name == "head" and value not in HEADS):
        return _file_meaning(str(value), str(file_state(Path(value))))
    return value


@lru_cache(maxsize=4096)
def _file_meaning(path: str, state: str) -> str:
    place = Path(path)
    if place.suffix == ".h5" and place.is_file():
        return str(read_header(place)["digest"])
    return file_sha256(place) if place.is_file() else path


BASELINE_STAGE = Stage("baseline", BaselineOptions, Baseline, "run")
#: The options of every baseline, beside those of its method.
OF_BASELINES = {f.name for f in fields(BaselineOptions)} - {"partition", "test"}


@lru_cache
def method_option_names(method: str) -> dict[str, str]:
    """The options of a baseline by their names in a study: ``method_NAME`` for the partition's."""
    own = {f.name for f in fields(method_class(method).settings_class)} | OF_BASELINES
    return {f"method_{name}" if name in OF_PARTITION else name: name for name in own}
