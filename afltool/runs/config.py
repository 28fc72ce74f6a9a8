"""Everything that a whole run can be told: the options of its stages, and a few of its own.

A run has one flat list of names, as its command line and TOML file have it. Most are the stages'
own; the seeds are named by their stage. Light to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from .. import inputs
from ..errors import AflError, UsageError
from ..heads import HEAD_NAMES as HEAD_NAMES
from ..heads import HEADS, OPTIONS, Names, make_options
from ..memory import Room, available, parse_size
from ..options.base import (
    Holds,
    Options,
    Reads,
    absolute,
    default_of,
    fields_of,
    files_in,
    flag,
    grammar,
    set_of,
)
from ..options.common import SEED, Threads, files_of
from ..options.evaluation import EvaluateOptions
from ..options.features import ExtractOptions, NumberFormat, TableOptions
from ..options.partition import SCHEMES, PartitionOptions
from ..options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from ..values.text import toml_line

CLIENTS, ALPHA = 100, 0.1  # of a run that is not told, where its scheme needs them
TABLE = "table"  # how given rows are read that are in no feature file
HERE = "here"  # the part of a run's options that jobs on other machines do not have
KEEP_LAST = "last"  # of the rounds of a finished run
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
    """What a run is told beside the options of its stages."""

    train_features: Annotated[Path | None, Reads("features")] = Field(
        default=None, description="training features, instead of --data and --backbone"
    )
    test_features: Annotated[Path | None, Reads("features")] = Field(
        default=None, description="test features, instead of --data and --backbone"
    )
    partition: Annotated[Path | None, Reads("partition")] = Field(
        default=None, description="an existing partition file, instead of --scheme and its options"
    )
    _head = "a head's name, or a head file"
    head: Annotated[str, Holds()] = Field(
        default="linear", description=_head, examples=list(HEADS.data)
    )
    head_seed: int | None = Field(
        default=None, ge=0, le=SEED, description="seed of the head's random parts (default: 0)"
    )
    keep_clients: bool = Field(
        default=False, description="write one statistics file per client, and add them up"
    )
    _train_accuracy = (
        "also measure the accuracy on the training rows; with --each-round after every round"
    )
    train_accuracy: bool = Field(default=False, description=_train_accuracy)
    _full_gram = (
        "deepafl: send all of ΦᵀΦ in every round, as in the paper; else only its change "
        "(--incremental), where all clients take part in every round"
    )
    full_gram: bool = Field(default=False, description=_full_gram)

    def check(self) -> None:
        if (self.train_features is None) != (self.test_features is None):
            raise UsageError("--train-features and --test-features go together")


@pydantic_dataclass(frozen=True, kw_only=True)
class HereOptions(Threads):
    """How a run uses this machine; the results do not depend on it."""

    EXECUTION_ONLY: ClassVar = frozenset({"memory", "keep_rounds"})

    _memory = (
        "memory for what later rounds need again, such as 8GB; the rest goes to a file that the "
        "run removes (default: half of what is free)"
    )
    memory: Annotated[str | None, grammar(parse_size)] = Field(default=None, description=_memory)
    _keep_rounds = (
        "of a head of several rounds: last removes the heads and totals of all rounds "
        "but the last one when the run is finished"
    )
    keep_rounds: Literal["all", "last"] = Field(default="all", description=_keep_rounds)

    def room(self, processes: int = 1) -> Room:
        """The memory that may be taken, as much of it as is free; ``processes`` share it."""
        free = available()
        wanted = free // 2 if self.memory is None else parse_size(self.memory).bytes
        return Room(min(wanted, free * 9 // 10) // processes)


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
    TABLE: {*fields_of(NumberFormat)},  # those of extract
    "extract": {"split", "shard", "unlabelled", "threads", "out", "overwrite"},
    "local_stats": {"partition", "client", "only", "sum", "held_out", "by", "threads"},
    "aggregate": {"subtract", "held_out", "complete", "allow_repeats", "threads"},
    "solve": {"head", "validate", "threads"},
    "evaluate": {*fields_of(EvaluateOptions)} - {"each_round", "separability"},
}


class RunField(NamedTuple):
    """An option of a run: of which part and class it is, and what this class calls it."""

    part: str
    cls: type[Options]
    name: str

    @property
    def info(self) -> Any:
        """pydantic's record of the field."""
        return fields_of(self.cls)[self.name]

    @property
    def default(self) -> Any:
        return default_of(self.cls, self.name)

    @property
    def in_result(self) -> bool:
        """Whether a result depends on it."""
        sets = ("EXECUTION_ONLY", "REFUSES")
        return not any(self.name in set_of(self.cls, one) for one in sets)


#: Every option of a run but those of heads, by its name in a run.
FIELDS: dict[str, RunField] = {
    names.get(name, name): RunField(part, cls, name)
    for part, (cls, names) in PARTS.items()
    for name in fields_of(cls)
    if name not in OMITTED.get(part, ())
}


@dataclass(frozen=True, init=False)
class RunConfig:
    """The options of a run, by stage; made of flat names: ``RunConfig(data="digits", clients=9)``.

    ``extract`` is None where features are given, ``partition`` where a partition file is. A scheme
    that needs clients or α gets 100 and 0.1; the draw of --participation gets the partition's seed.

    Raises:
        UsageError: values out of range, options that do not go together, a name that no stage has.
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
            raise UsageError(f"{flag(strangers[0])} is no option of run")
        values: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
        for name, value in given.items():
            values[FIELDS[name].part][FIELDS[name].name] = value
        for name, part in _parts(values).items():
            object.__setattr__(self, name, part)
        object.__setattr__(self, "head_options", theirs)

    def given(self) -> dict[str, Any]:
        """The options that are not their defaults, by flat name; they make an equal run again."""
        values: dict[str, Any] = {}
        for name, f in FIELDS.items():
            part = self.part(f.part)
            if part is None and name in OMITTED[TABLE]:
                part = self.table
            if part is not None and (name in NEEDED or getattr(part, f.name) != f.default):
                values[name] = getattr(part, f.name)
        return {**values, **self.head_options}

    def meaning(self) -> dict[str, Any]:
        """Of `given` what the result depends on."""
        every = self.given().items()
        return {k: v for k, v in every if k not in FIELDS or FIELDS[k].in_result}

    def part(self, name: str) -> Options | None:
        """The options of a part of `PARTS`; None for a stage that is left out."""
        options: Options | None = getattr(self, name)
        return options

    def with_absolute_paths(self) -> RunConfig:
        """The same run from any working directory: every path that it names is absolute."""
        own = None if self.first_head else OPTIONS[self.own.head]
        theirs = {} if own is None else {name: (own, name) for name in fields_of(own)}
        known = {**theirs, **{name: f[1:] for name, f in FIELDS.items()}}
        every = self.given().items()
        return RunConfig(**{k: absolute(*known[k], v) if k in known else v for k, v in every})

    def to_toml(self) -> str:
        """The TOML file that `read_config` reads the same run from."""
        return "".join(f"{toml_line(name, value)}\n" for name, value in self.given().items())

    @property
    def first_head(self) -> Path | None:
        """The head file that the run is given; None for a head that it makes of its options."""
        return None if self.own.head in OPTIONS else Path(self.own.head)

    def all_head_options(self) -> dict[str, Any]:
        """The options of the run's head: those given, its seed, and what the run makes of them.

        That is how rounds are made cheaper, and what follows from the data set.
        """
        seed = {} if self.own.head_seed is None else {"seed": self.own.head_seed}
        return {**self.cheaper(), **self.head_options, **self.for_data(), **seed}

    def at_solve(self) -> dict[str, Any]:
        """The options that `solve` is told, defaults too, since no sum depends on them.

        So sums serve that were gathered with others. Of a head file that is given they are all that
        are given: nothing else of it may change.
        """
        given = self.all_head_options()
        if self.first_head is not None:
            return given
        options = make_options(self.own.head, given)
        return {name: getattr(options, name) for name in sorted(options.changeable())}

    def for_data(self) -> dict[str, Any]:
        """What the head's options are because of the run's data set."""
        if self.first_head is not None:
            return {}
        data = None if self.extract is None else self.extract.data
        return OPTIONS[self.own.head].for_data(self.head_options, data)

    def cheaper(self) -> dict[str, Any]:
        """What the run adds to the head's options where all clients take part in every round."""
        everybody = self.local_stats.participation == 1 and not self.own.full_gram
        if self.first_head is not None or not everybody:
            return {}
        return OPTIONS[self.own.head].for_everybody(self.head_options)


def with_features(config: RunConfig) -> RunConfig:
    """The same run with feature files in the place of tables and archives, which are imported.

    The test features get the number format and the classes of the training features.
    """
    from ..files.hdf5 import read_header
    from ..stages._direct import feature_file

    own, given = config.own, config.given()
    if own.train_features is None or own.test_features is None:
        return config
    train = feature_file(own.train_features, config.table)
    test = own.test_features
    if test.suffix != train.suffix:
        test = feature_file(test, config.table, read_header(train, "features"))
    left = fields_of(TableOptions).keys()
    kept = {name: value for name, value in given.items() if name not in left}
    return RunConfig(**{**kept, "train_features": train, "test_features": test})


def all_files(config: RunConfig) -> Iterator[tuple[str, Path, bool]]:
    """`files_of` of the options of a run, those of the head that it makes too."""
    for part in filter(None, map(config.part, PARTS)):
        yield from files_of(part)
    if config.first_head is None:
        yield from files_in(OPTIONS[config.own.head], config.head_options)


def _parts(values: dict[str, dict[str, Any]]) -> dict[str, Options | None]:
    """The options of each stage, with the run's own defaults; None for a stage that is left out."""
    own = OwnOptions(**values["own"])
    images, table = values["extract"], values[TABLE]
    if own.train_features is not None:
        table |= {name: images.pop(name) for name in OMITTED[TABLE] & images.keys()}
    elif table:
        raise UsageError(
            f"{flag(min(table))} is for tables and archives (--train-features, --test-features)"
        )
    dealt, gathered = values["partition"], values["local_stats"]
    added = AggregateOptions(**values["aggregate"])
    if added.law != "sum" and not own.keep_clients:
        raise UsageError(
            f"--law {added.law} folds the files of the clients: it needs --keep-clients"
        )
    if gathered.get("participation", 1.0) != 1.0:
        gathered.setdefault("participation_seed", dealt.get("seed", 0))
    return {
        "own": own,
        TABLE: TableOptions(**table),
        HERE: HereOptions(**values[HERE]),
        "extract": _extract(own, images),
        "partition": _partition(own, dealt),
        "local_stats": LocalStatsOptions(**gathered),
        "aggregate": added,
        "solve": SolveOptions(**values["solve"]),
        "evaluate": EvaluateOptions(**values["evaluate"]),
    }


def _extract(own: OwnOptions, values: dict[str, Any]) -> ExtractOptions | None:
    if own.train_features is not None:
        _refuse("extract", values, "images; this run is given its features (--train-features)")
        return None
    if not set(NEEDED) <= values.keys():
        raise UsageError(
            "a run needs --data and --backbone (or --train-features and --test-features)"
        )
    with _as_run_says("extract"):
        return ExtractOptions(**values)


def _partition(own: OwnOptions, values: dict[str, Any]) -> PartitionOptions | None:
    if own.partition is not None:
        what = "a partition that the run makes; this run is given one (--partition)"
        _refuse("partition", values, what)
        return None
    scheme = values.get("scheme", "dirichlet")
    known = isinstance(scheme, str) and scheme in SCHEMES  # others are refused below
    needs = SCHEMES[scheme][0] if known else frozenset()
    defaults = {"clients": CLIENTS, "alpha": ALPHA}
    with _as_run_says("partition"):
        return PartitionOptions(**{k: v for k, v in defaults.items() if k in needs} | values)


def _refuse(part: str, values: Mapping[str, Any], what: str) -> None:
    """Refuse options of a part that the run leaves out; the first is named as the run calls it."""
    if values:
        name = min(values)
        raise UsageError(f"{flag(PARTS[part][1].get(name, name))} is for {what}")


@contextmanager
def _as_run_says(part: str) -> Iterator[None]:
    """Inside, a message about an option of this part has the name that the run has for it."""
    try:
        yield
    except UsageError as error:
        for own, name in PARTS[part][1].items():
            text = re.sub(rf"{flag(own)}(?![\w-])", flag(name), str(error))
            error.args = (text, *error.args[1:])
        raise


def is_of_run(path: Path, config: RunConfig) -> bool:
    """Whether a TOML file is there and has the options of this run, whatever else stands in it."""
    written = _as_written(path)
    return written is not None and written == config.with_absolute_paths().to_toml()


def is_canonical(path: Path) -> bool:
    """Whether a TOML file holds what `RunConfig.to_toml` writes, and nothing of somebody else."""
    return _as_written(path) == path.read_text("utf-8", "replace")


def _as_written(path: Path) -> str | None:
    """The options of a TOML file as a run writes them; None where it has none that make a run."""
    try:
        return RunConfig(**read_config(path)).with_absolute_paths().to_toml()
    except (AflError, OSError, TypeError):
        return None


def read_config(path: Path) -> dict[str, Any]:
    """Options from a TOML file: the long option names as keys, in any tables.

    Raises `UsageError` for a key that is no option, naming the nearest one.
    """
    names = Names(lambda: iter([FIELDS, HEAD_NAMES]))
    values = inputs.flat(path, inputs.read_toml(path, "options"))
    return {inputs.known_key(path, key, names, "run"): value for key, value in values.items()}
