"""Everything that a whole run can be told: the options of its stages, and a few of its own.

A run has one flat list of names, as its command line and TOML file have it. Most are the stages'
own; the seeds are named by their stage. Light to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from .. import inputs
from ..errors import AflError, UsageError
from ..heads import HEAD_NAMES as HEAD_NAMES
from ..heads import OPTIONS, Names
from ..memory import Room, Size, available, parse_size
from ..options import Options, checked, flag, option, unused
from ..options.evaluation import EvaluateOptions
from ..options.features import ExtractOptions
from ..options.partition import SCHEMES, PartitionOptions
from ..options.shared import SEED, Given, of_field, threads_option
from ..options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from ..values.text import toml_line

CLIENTS, ALPHA = 100, 0.1  # of a run that is not told, where its scheme needs them
HERE = "here"  # the part of a run's options that jobs on other machines do not have
KEEP_ALL, KEEP_LAST = "all", "last"  # of the rounds of a finished run
NEEDED = ("data", "backbone")  # of a run that extracts: it takes no default for them
#: What the help of `run` says of defaults that are not those of the stage.
DEFAULTS = {
    "backbone": "",
    "data": "",
    "clients": f"default: {CLIENTS}",
    "alpha": f"default: {ALPHA}",
    "participation_seed": "default: --partition-seed",
}


@dataclass(frozen=True, kw_only=True)
class OwnOptions(Options):
    """What a run is told beside the options of its stages."""

    train_features: Path | None = option(
        None, "training features, instead of --data and --backbone", common=True
    )
    test_features: Path | None = option(
        None, "test features, instead of --data and --backbone", common=True
    )
    partition: Path | None = option(
        None, "an existing partition file, instead of --scheme and its options"
    )
    _head = "a head's name, or a head file"
    head: str = option("linear", _head, examples=tuple(OPTIONS), names_file=True, common=True)
    head_seed: int | None = option(
        None, "seed of the head's random parts", at_least=0, at_most=SEED, unset="0"
    )
    keep_clients: bool = option(False, "write one statistics file per client, and add them up")
    train_accuracy: bool = option(
        False, "also measure the accuracy on the training rows; with --each-round after every round"
    )
    _full_gram = (
        "deepafl: send all of ΦᵀΦ in every round, as in the paper; else only its change "
        "(--incremental), where all clients take part in every round"
    )
    full_gram: bool = option(False, _full_gram)

    def check(self) -> None:
        if (self.train_features is None) != (self.test_features is None):
            raise UsageError("--train-features and --test-features go together")


@dataclass(frozen=True, kw_only=True)
class HereOptions(Options):
    """How a run uses this machine; the results do not depend on it."""

    _memory = (
        "memory for what later rounds need again, such as 8GB; the rest "
        "goes to a file that the run removes"
    )
    memory: Size | None = option(
        None,
        _memory,
        unset="half of what is free",
        in_result=False,
        only={"rounds": True},
        of_axes=True,
        parse=parse_size,
    )
    threads: int | None = threads_option(in_run=True)
    _keep_rounds = (
        "of a head of several rounds: last removes the heads and totals of all rounds "
        "but the last one when the run is finished"
    )
    keep_rounds: str = option(
        KEEP_ALL,
        _keep_rounds,
        choices=(KEEP_ALL, KEEP_LAST),
        in_result=False,
        only={"rounds": True},
        of_axes=True,
    )

    def room(self, processes: int = 1) -> Room:
        """The memory that may be taken, as much of it as is free; ``processes`` share it."""
        free = available()
        wanted = free // 2 if self.memory is None else self.memory.bytes
        return Room(min(wanted, free * 9 // 10) // processes)


#: The stages of a run in order: their options, and the names that the run has for some of them.
PARTS: dict[str, tuple[type[Options], dict[str, str]]] = {
    "extract": (ExtractOptions, {"seed": "weights_seed"}),
    "partition": (PartitionOptions, {"seed": "partition_seed"}),
    "own": (OwnOptions, {}),
    HERE: (HereOptions, {}),
    "local_stats": (LocalStatsOptions, {}),
    "aggregate": (AggregateOptions, {}),
    "solve": (SolveOptions, {}),
    "evaluate": (EvaluateOptions, {}),
}


def named_fields() -> Iterator[tuple[str, str, Field[Any]]]:
    """(part, name in a run, field) of every option of a run but those of heads."""
    for part, (cls, names) in PARTS.items():
        for f in fields(cls):
            if f.metadata["in_run"]:
                yield part, names.get(f.name, f.name), f


FIELDS: dict[str, Field[Any]] = {name: f for _, name, f in named_fields()}
_PART: dict[str, str] = {name: part for part, name, _ in named_fields()}


@dataclass(frozen=True, init=False)
class RunConfig:
    """The options of a run, by stage; made of flat names: ``RunConfig(data="digits", clients=9)``.

    ``extract`` is None where features are given, ``partition`` where a partition file is. A scheme
    that needs clients or α gets 100 and 0.1; the draw of --participation gets the partition's seed.

    Raises:
        UsageError: values out of range, options that do not go together, a name that no stage has.
    """

    own: OwnOptions
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
            f = FIELDS[name]
            values[_PART[name]][f.name] = checked(f, value, name)
        for name, part in _parts(values).items():
            object.__setattr__(self, name, part)
        object.__setattr__(self, "head_options", theirs)

    def given(self) -> dict[str, Any]:
        """The options that are not their defaults, by flat name; they make an equal run again."""
        values: dict[str, Any] = {}
        for name, f in FIELDS.items():
            part = self.part(_PART[name])
            if part is not None and (name in NEEDED or getattr(part, f.name) != f.default):
                values[name] = getattr(part, f.name)
        return {**values, **self.head_options}

    def used(self) -> dict[str, Any]:
        """Of `given` what is used: an axis gives --participation-kind to every cell, say."""
        parts = {part: self.part(part) for part in PARTS}
        idle = {(part, f) for part, o in parts.items() if o is not None for f, _ in unused(o)}
        known = self.given().items()
        return {k: v for k, v in known if (_PART.get(k), FIELDS.get(k)) not in idle}

    def meaning(self) -> dict[str, Any]:
        """Of `given` what the result depends on."""
        known = self.fields()
        every = self.given().items()
        return {k: v for k, v in every if k not in known or known[k].metadata["in_result"]}

    def part(self, name: str) -> Options | None:
        """The options of a part of `PARTS`; None for a stage that is left out."""
        options: Options | None = getattr(self, name)
        return options

    def with_absolute_paths(self) -> RunConfig:
        """The same run from any working directory: every path that it names is absolute."""
        known = self.fields()
        return RunConfig(**{k: absolute(v, known.get(k)) for k, v in self.given().items()})

    def fields(self) -> dict[str, Field[Any]]:
        """Its options by flat name, those of the head that it makes too."""
        theirs = {} if self.first_head else {f.name: f for f in fields(OPTIONS[self.own.head])}
        return {**theirs, **FIELDS}

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


def files_of(config: RunConfig) -> Iterator[Given]:
    """What the options of a run say of files."""
    known = config.fields()
    for name, value in config.given().items():
        files = of_field(known[name]) if name in known else None
        if files is not None:
            yield flag(name), files, value


def _parts(values: dict[str, dict[str, Any]]) -> dict[str, Options | None]:
    """The options of each stage, with the run's own defaults; None for a stage that is left out."""
    own = OwnOptions(**values["own"])
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
        HERE: HereOptions(**values[HERE]),
        "extract": _extract(own, values["extract"]),
        "partition": _partition(own, dealt),
        "local_stats": LocalStatsOptions(**gathered),
        "aggregate": added,
        "solve": SolveOptions(**values["solve"]),
        "evaluate": EvaluateOptions(**values["evaluate"]),
    }


def _extract(own: OwnOptions, values: dict[str, Any]) -> ExtractOptions | None:
    if own.train_features is None:
        if set(NEEDED) <= values.keys():
            with _as_run_says("extract"):
                return ExtractOptions(**values)
        raise UsageError(
            "a run needs --data and --backbone (or --train-features and --test-features)"
        )
    if values:
        raise UsageError(
            f"{flag(_run_name('extract', values))} is for images; this run is given its features "
            "(--train-features)"
        )
    return None


def _partition(own: OwnOptions, values: dict[str, Any]) -> PartitionOptions | None:
    if own.partition is None:
        scheme = values.get("scheme", "dirichlet")
        needs = SCHEMES[scheme][0]
        defaults = {"clients": CLIENTS, "alpha": ALPHA}
        with _as_run_says("partition"):
            return PartitionOptions(**{k: v for k, v in defaults.items() if k in needs} | values)
    if values:
        raise UsageError(
            f"{flag(_run_name('partition', values))} is for a partition that the run makes; this "
            "run is given one (--partition)"
        )
    return None


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


def _run_name(part: str, values: Mapping[str, Any]) -> str:
    """What the run calls the first of these options of a part."""
    name = min(values)
    return PARTS[part][1].get(name, name)


def absolute(value: Any, f: Field[Any] | None) -> Any:
    """The value of a field with an absolute path in it, where it is a path or names a file."""
    if isinstance(value, tuple):
        return tuple(absolute(one, f) for one in value)
    if isinstance(value, Path):
        return value.absolute()
    metadata = {} if f is None else f.metadata
    if isinstance(value, str) and metadata.get("absolute"):
        return metadata["absolute"](value)
    if (
        not isinstance(value, str)
        or not metadata.get("names_file")
        or value in metadata["examples"]
    ):
        return value
    return str(Path(value).absolute()) if Path(value).is_file() else value


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
        with inputs.distinct_files():  # looking at an output is not reading it
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
