"""The options of a run: those of its stages and a few of its own, by one flat list of names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic.dataclasses import dataclass as pydantic_dataclass

from .. import inputs
from ..errors import AflError, UsageError
from ..files.atomic import write_text
from ..heads import HEAD_NAMES as HEAD_NAMES
from ..heads import HEADS, Names, make_options, options_class
from ..heads.options import PAPER
from ..memory import MemoryBudget, available, parse_size
from ..options.base import (
    Holds,
    Options,
    Reads,
    absolute,
    files_in,
    flag,
    get_default,
    get_fields,
    get_option_set,
    grammar,
    option,
)
from ..options.common import SEED, Threads, list_option_files
from ..options.evaluation import EvaluateOptions
from ..options.features import ExtractOptions, NumberFormat, TableOptions
from ..options.partition import SCHEMES, PartitionOptions
from ..options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from ..renamed import instead_of
from ..values.text import toml_line

CLIENTS, ALPHA = 100, 0.1  # of a run that is not told, where its scheme needs them
TABLE = "table"  # how given rows are read that are in no feature file
HERE = "here"  # the part of a run's options that jobs on other machines do not have
NEEDED = ("data", "backbone")  # of a run that extracts: it takes no default for them
#: What the help of `run` says of defaults that are not those of the stage.
DEFAULTS = {
    "backbone": "",
    "data": "",
    "clients": f"default: {CLIENTS}",
    "alpha": f"default: {ALPHA}",
    "participation_seed": "default: --partition-seed",
}


@pydantic_dataclass(frozen=True, kw_only=True)
class OwnOptions(Options):
    train_features: Annotated[Path | None, Reads("features")] = option(
        None, "training features, instead of --data and --backbone"
    )
    test_features: Annotated[Path | None, Reads("features")] = option(
        None, "test features, instead of --data and --backbone"
    )
    partition: Annotated[Path | None, Reads("partition")] = option(
        None, "an existing partition file, instead of --scheme and its options"
    )
    _head = "a head's name, or a head file"
    head: Annotated[str, Holds()] = option("linear", _head, examples=list(HEADS.data))
    head_seed: int | None = option(
        None, "seed of the head's random parts (default: 0)", ge=0, le=SEED
    )
    keep_clients: bool = option(False, "write one statistics file per client and sum them")
    _train_accuracy = (
        "also measure the accuracy on the training rows; with --each-round after every round"
    )
    train_accuracy: bool = option(False, _train_accuracy)
    _full_gram = (
        "deepafl: send all of ΦᵀΦ in every round, as in the paper; else only its change "
        "(--incremental), where all clients take part in every round"
    )
    full_gram: bool = option(False, _full_gram)

    def check(self) -> None:
        if (self.train_features is None) != (self.test_features is None):
            raise UsageError("--train-features and --test-features go together")


@pydantic_dataclass(frozen=True, kw_only=True)
class HereOptions(Threads):
    """How a run uses this machine; the results do not depend on it."""

    EXECUTION_ONLY: ClassVar = frozenset({"memory"})

    _memory = (
        "memory for rows that later rounds need again, such as 8GB; the rest is computed again "
        "(default: half of what is free)"
    )
    memory: Annotated[str | None, grammar(parse_size)] = option(None, _memory)

    def room(self, processes: int = 1) -> MemoryBudget:
        """The memory that may be taken, as much of it as is free; ``processes`` share it."""
        free = available()
        wanted = free // 2 if self.memory is None else parse_size(self.memory).bytes
        return MemoryBudget(min(wanted, free * 9 // 10) // processes)


#: The stages of a run in order: their options, and the names that the run has for some of them.
PARTS: dict[str, tuple[type[Options], dict[str, str]]] = {
    "extract": (ExtractOptions, {"seed": "weights_seed"}),
    "partition": (PartitionOptions, {"seed": "partition_seed"}),
    "own": (OwnOptions, {}),
    TABLE: (TableOptions, {}),
    HERE: (HereOptions, {}),
    "local_stats": (LocalStatsOptions, {}),
    "aggregate": (AggregateOptions, {}),
    "solve": (SolveOptions, {}),
    "evaluate": (EvaluateOptions, {}),
}
#: Options of stages that a run decides itself, or has no use for.
OMITTED = {
    TABLE: {*get_fields(NumberFormat), "y"},  # those of extract
    "extract": {"split", "shard", "unlabeled", "threads", "out", "overwrite"},
    "local_stats": {"partition", "client", "only", "sum", "held_out", "threads"},
    "aggregate": {"subtract", "held_out", "complete", "allow_repeats", "threads"},
    "solve": {"head", "validate", "threads"},
    "evaluate": {*get_fields(EvaluateOptions)} - {"each_round", "separability"},
}


class RunField(NamedTuple):
    """An option of a run: of which part and class it is, and what this class calls it."""

    part: str
    cls: type[Options]
    name: str

    @property
    def info(self) -> Any:
        return get_fields(self.cls)[self.name]

    @property
    def in_result(self) -> bool:
        sets = (get_option_set(self.cls, one) for one in ("EXECUTION_ONLY", "REFUSES"))
        return self.name not in frozenset().union(*sets)


#: Every option of a run but those of heads, by its name in a run.
FIELDS: dict[str, RunField] = {
    names.get(name, name): RunField(part, cls, name)
    for part, (cls, names) in PARTS.items()
    for name in get_fields(cls)
    if name not in OMITTED.get(part, ())
}


@dataclass(frozen=True, init=False)
class RunConfig:
    """The options of a run, by stage; made of flat names: ``RunConfig(data="digits", clients=9)``.

    ``extract`` is None where features are given, ``partition`` where a partition file is. A scheme
    that needs clients or α gets 100 and 0.1; the draw of --participation gets the partition's seed.
    Raises `UsageError` for wrong values, and for a name that no stage has.
    """

    own: OwnOptions
    table: TableOptions
    here: HereOptions
    extract: ExtractOptions | None
    partition: PartitionOptions | None
    local_stats: LocalStatsOptions
    aggregate: AggregateOptions
    solve: SolveOptions
    evaluate: EvaluateOptions
    head_options: dict[str, Any]

    def __init__(self, *, head_options: Mapping[str, Any] | None = None, **given: Any) -> None:
        given = {k: v for k, v in given.items() if v is not None}
        theirs = dict(head_options or {})
        of_head = [k for k in given if k not in FIELDS and k in HEAD_NAMES]  # a set has no order
        theirs |= {k: given.pop(k) for k in of_head}
        if strangers := sorted(given.keys() - FIELDS.keys()):
            instead = instead_of(strangers[0]) or "no option of run"
            raise UsageError(f"{flag(strangers[0])} is {instead}")
        values: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
        for name, value in given.items():
            values[FIELDS[name].part][FIELDS[name].name] = value
        for name, part in _parts(values).items():
            object.__setattr__(self, name, part)
        object.__setattr__(self, "head_options", theirs)

    def given_options(self) -> dict[str, Any]:
        """The options that are not their defaults, by flat name; they make an equal run again."""
        values: dict[str, Any] = {}
        for name, f in FIELDS.items():
            part = self.part(f.part)
            if part is None and name in OMITTED[TABLE]:
                part = self.table
            if part is not None and (
                name in NEEDED or getattr(part, f.name) != get_default(f.cls, f.name)
            ):
                values[name] = getattr(part, f.name)
        return {**values, **self.head_options}

    def part(self, name: str) -> Options | None:
        """The options of a part of `PARTS`; None for a stage that is left out."""
        return vars(self)[name]  # type: ignore[no-any-return]

    def with_absolute_paths(self) -> RunConfig:
        """The same run from any working directory: every path that it names is absolute."""
        own = None if self.first_head else options_class(self.own.head)
        theirs = {} if own is None else {name: (own, name) for name in get_fields(own)}
        known = {**theirs, **{name: f[1:] for name, f in FIELDS.items()}}
        every = self.given_options().items()
        return RunConfig(**{k: absolute(*known[k], v) if k in known else v for k, v in every})

    def to_toml(self) -> str:
        return "".join(
            f"{toml_line(name, value)}\n" for name, value in self.given_options().items()
        )

    @property
    def first_head(self) -> Path | None:
        """The head file that the run is given; None for a head that it makes of its options."""
        return None if self.own.head in HEADS else Path(self.own.head)

    def all_head_options(self) -> dict[str, Any]:
        """The options of the run's head: those given, its seed, `cheaper` and `for_data`."""
        seed = {} if self.own.head_seed is None else {"seed": self.own.head_seed}
        return {**self.cheaper(), **self.head_options, **self.for_data(), **seed}

    def at_solve(self) -> dict[str, Any]:
        """The options on which no sum depends, defaults too; of a head file all that are given."""
        given = self.all_head_options()
        if self.first_head is not None:
            return given
        options = make_options(self.own.head, given)
        return {name: getattr(options, name) for name in sorted(options.changeable())}

    def for_data(self) -> dict[str, Any]:
        """The preset that 'paper' stands for."""
        known = () if self.first_head is not None else options_class(self.own.head).PUBLISHED
        if not known or self.head_options.get("preset") != PAPER:
            return {}
        data = None if self.extract is None else self.extract.data
        return {"preset": data if data in known else known[-1]}

    def cheaper(self) -> dict[str, Any]:
        """What the run adds to the head's options where all clients take part in every round."""
        everybody = self.local_stats.participation == 1 and not self.own.full_gram
        switch = "" if self.first_head is not None else options_class(self.own.head).CHEAPER
        if not switch or not everybody or switch in self.head_options:
            return {}
        try:
            make_options(self.own.head, {**self.head_options, **self.for_data(), switch: True})
        except UsageError:  # another option excludes it
            return {}
        return {switch: True}


def with_features(config: RunConfig) -> RunConfig:
    """The same run with feature files in the place of tables and archives, which are imported."""
    from ..files.hdf5 import read_header
    from ..stages._direct import feature_file

    own, given = config.own, config.given_options()
    if own.train_features is None or own.test_features is None:
        return config
    train = feature_file(own.train_features, config.table)
    test = own.test_features
    if test.suffix != train.suffix:
        test = feature_file(test, config.table, read_header(train, "features"))
    left = get_fields(TableOptions).keys()
    kept = {name: value for name, value in given.items() if name not in left}
    return RunConfig(**{**kept, "train_features": train, "test_features": test})


def list_run_files(config: RunConfig) -> Iterator[tuple[str, Path, bool]]:
    """`list_option_files` of the options of a run, those of the head that it makes too."""
    for part in filter(None, map(config.part, PARTS)):
        yield from list_option_files(part)
    if config.first_head is None:
        yield from files_in(options_class(config.own.head), config.head_options)


def _parts(values: dict[str, dict[str, Any]]) -> dict[str, Options | None]:
    """The options of each part, with the run's own defaults; None for a stage that is left out."""
    own, images, dealt = OwnOptions(**values["own"]), values["extract"], values["partition"]
    left_out: dict[str, str] = {}  # why
    if own.train_features is not None:
        values[TABLE] |= {name: images.pop(name) for name in OMITTED[TABLE] & images.keys()}
        left_out["extract"] = "images; this run is given its features (--train-features)"
    elif values[TABLE]:
        raise UsageError(
            f"{flag(min(values[TABLE]))} is for tables and archives (--train-features, "
            "--test-features)"
        )
    elif not set(NEEDED) <= images.keys():
        raise UsageError(
            "a run needs --data and --backbone (or --train-features and --test-features)"
        )
    if own.partition is not None:
        left_out["partition"] = "a partition that the run makes; here one is given (--partition)"
    else:
        scheme = SCHEMES.get(str(dealt.get("scheme", "dirichlet")))  # others are refused below
        defaults = {"clients": CLIENTS, "alpha": ALPHA}
        values["partition"] = {k: v for k, v in defaults.items() if scheme and k in scheme[0]}
        values["partition"] |= dealt
    law = values["aggregate"].get("law", "sum")
    if law != "sum" and not own.keep_clients:
        raise UsageError(f"--law {law} folds the files of the clients: it needs --keep-clients")
    if values["local_stats"].get("participation", 1.0) != 1.0:
        values["local_stats"].setdefault("participation_seed", dealt.get("seed", 0))
    return {part: _part(part, given, left_out.get(part)) for part, given in values.items()}


def _part(part: str, given: Mapping[str, Any], left_out: str | None) -> Options | None:
    """The options of a part; a message has the name that the run has for an option."""
    cls, names = PARTS[part]
    if left_out is not None and given:
        raise UsageError(f"{flag(names.get(min(given), min(given)))} is for {left_out}")
    try:
        return None if left_out is not None else cls(**given)
    except UsageError as error:
        for own, name in names.items():
            text = re.sub(rf"{flag(own)}(?![\w-])", flag(name), str(error))
            error.args = (text, *error.args[1:])
        raise


def get_written_options(path: Path) -> str | None:
    """The options of a TOML file as a run writes them; None where it has none that make a run."""
    try:
        return RunConfig(**read_config(path)).with_absolute_paths().to_toml()
    except (AflError, OSError, TypeError):
        return None


def keep_options(config: RunConfig, place: Path) -> None:
    """Write run.toml, unless it says this run already, be it with comments of its owner."""
    text = config.with_absolute_paths().to_toml()
    if get_written_options(place) != text:
        write_text(text, place, overwrite=True)


def read_config(path: Path) -> dict[str, Any]:
    names = Names(lambda: iter([FIELDS, HEAD_NAMES]))
    values = inputs.flat(path, inputs.read_toml(path, "options"))
    return {inputs.check_key(path, key, names, "run"): value for key, value in values.items()}
