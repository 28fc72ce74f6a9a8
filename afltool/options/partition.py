"""Options of `partition`, and which of them each scheme needs or may have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..plugins import Registry
from .base import Choices, File, Options, Reads, Writes, fields_of, flag
from .common import SEED, Output, Printed

#: Scheme → the options that it needs, and those that it may have.
SCHEMES: Registry[tuple[frozenset[str], frozenset[str]]] = Registry(
    "afltool.schemes",
    {
        "iid": (frozenset({"clients"}), frozenset()),
        "dirichlet": (frozenset({"clients", "alpha"}), frozenset({"min_size"})),
        "shards": (frozenset({"clients", "shards_per_client"}), frozenset()),
        "by-attribute": (frozenset({"table", "column"}), frozenset()),
        "file": (frozenset({"table"}), frozenset({"column", "clients"})),
        "dirichlet-pfl": (frozenset({"clients", "alpha"}), frozenset({"min_size", "top_up"})),
        "pathological-pfl": (frozenset({"clients"}), frozenset({"shards_per_client", "min_size"})),
    },
    lambda text, found: (frozenset(found.NEEDS), frozenset(found.MAY)),
)
Exported = Annotated[Path | None, Writes()]
EXPORT = "also write row,client as CSV, parquet, JSON"
_OWN = sorted({name for needs, may in SCHEMES.data.values() for name in needs | may})


@dataclass(frozen=True, kw_only=True)
class PartitionOptions(Options):
    """How the rows of a feature file are dealt to clients."""

    _scheme = "how rows are dealt to clients"
    scheme: Annotated[str, Choices(SCHEMES)] = Field(default="dirichlet", description=_scheme)
    _alpha = "α of the Dirichlet distribution; a small α gives each client few classes"
    alpha: float | None = Field(default=None, ge=1e-100, le=1e100, description=_alpha)
    clients: int | None = Field(default=None, ge=1, le=2**31 - 1, description="number of clients K")
    seed: int = Field(default=0, ge=0, le=SEED, description="seed of the partition")
    _shards = "shards for each client (pathological-pfl: classes)"
    shards_per_client: int | None = Field(default=None, ge=1, le=2**31 - 1, description=_shards)
    _min_size = "draw again until every client has this many rows"
    min_size: int | None = Field(default=None, ge=0, le=SEED, description=_min_size)
    _held_out = "share of the clients held out for validation"
    held_out: float = Field(default=0.0, ge=0, lt=1, description=_held_out)
    _label_noise = "share of the rows that get another label at random"
    label_noise: float = Field(default=0.0, ge=0, lt=1, description=_label_noise)
    _table = "table with a column of row ids and one of clients: .csv, .parquet or .json"
    table: Annotated[Path | None, Reads()] = Field(default=None, description=_table)
    _column = "column of --table whose values are the clients (default: client)"
    column: str | None = Field(default=None, description=_column)
    _top_up = "dirichlet-pfl: fill the smallest clients up to --min-size"
    top_up: bool = Field(default=False, description=_top_up)

    def check(self) -> None:
        super().check()
        check_scheme(self)


@dataclass(frozen=True)
class Partition(PartitionOptions, Output):
    """Assign the rows of a feature file to clients; each row gets one client."""

    STAGE: ClassVar = "stages.partition:partition"
    _features = "features whose rows are assigned"
    features: Annotated[File, Reads("features")] = Field(description=_features)
    out: Annotated[File, Writes("partition")] = Field(description="partition file")
    export: Exported = Field(default=None, kw_only=True, description=EXPORT)


@dataclass(frozen=True)
class PartitionOrLook(PartitionOptions, Output, Printed):
    """Assign the rows of a feature file to clients; each row gets one client.

    Only row ids and labels are used, so every machine makes the same partition. Give a partition
    file instead of features to --describe or --export it.
    """

    PRINTS: ClassVar = "cli.calls:partition"
    COMMON: ClassVar = frozenset(
        {"out", "scheme", "alpha", "clients", "seed", "held_out", "table", "describe", "export"}
        | {"overwrite"}
    )

    _features = "features whose rows are assigned; or a partition to look at"
    features: Annotated[File, Reads()] = Field(description=_features)
    _out = "partition file"
    out: Annotated[Path | None, Writes("partition")] = Field(default=None, description=_out)
    export: Exported = Field(default=None, kw_only=True, description=EXPORT)
    _describe = "print the table of the partition"
    describe: bool = Field(default=False, kw_only=True, description=_describe)

    def check(self) -> None:
        if self.out is not None:
            super().check()
            return
        for name in fields_of(PartitionOptions):
            self.needs(name, "out")
        self.needs("overwrite", "out", "export")


def check_scheme(options: PartitionOptions) -> None:
    """Refuse options that a scheme lacks or does not take, and seeds that it cannot use."""
    needs, may = SCHEMES[options.scheme]
    given = {name for name in _OWN if getattr(options, name) not in (None, False)}
    missing, foreign = sorted(needs - given), sorted(given - needs - may)
    if missing or foreign:
        wrong = f"does not take {_flags(foreign)}"
        if missing:
            wrong = f"is given without {_flags(missing)}"
        more = f" and may have {_flags(sorted(may))}" if may else ""
        raise UsageError(
            f"--scheme {options.scheme} {wrong}; it needs {_flags(sorted(needs))}{more}"
        )
    if options.scheme.endswith("-pfl") and options.seed >= 2**32:
        raise UsageError(f"--seed of {options.scheme} is below 2^32; found {options.seed}")


def _flags(names: list[str]) -> str:
    return ", ".join(map(flag, names))
