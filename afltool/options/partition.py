"""Options of `partition`, and which of them each scheme needs or may have."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..plugins import Registry
from .base import Choices, File, FileIn, FileOut, Options, Reads, Writes, flag
from .common import SEED, Output

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
    held_out: float = Field(default=0.0, ge=0, lt=1, description="share of clients held out")
    label_noise: float = Field(default=0.0, ge=0, lt=1, description="share of relabeled rows")
    _table = "table with a column of row ids and one of clients: .csv or .parquet"
    table: FileIn = Field(default=None, description=_table)
    _column = "column of --table whose values are the clients (default: client)"
    column: str | None = Field(default=None, description=_column)
    top_up: bool = Field(default=False, description="dirichlet-pfl: fill clients up to --min-size")

    def check(self) -> None:
        """Refuse options that the scheme lacks or does not take, and seeds that it cannot use."""
        super().check()
        needs, may = SCHEMES[self.scheme]
        given = {name for name in _OWN if getattr(self, name) not in (None, False)}
        missing, foreign = sorted(needs - given), sorted(given - needs - may)
        if missing or foreign:
            wrong = f"is given without {_flags(missing)}"
            if not missing:
                wrong = f"does not take {_flags(foreign)}"
            more = f" and may have {_flags(sorted(may))}" if may else ""
            needed = f"it needs {_flags(sorted(needs))}{more}"
            raise UsageError(f"--scheme {self.scheme} {wrong}; {needed}")
        if self.scheme.endswith("-pfl") and self.seed >= 2**32:
            raise UsageError(f"--seed of {self.scheme} is below 2^32; found {self.seed}")


@dataclass(frozen=True)
class Partition(PartitionOptions, Output):
    """Assign the rows of a feature file to clients; each row gets one client.

    Only row ids and labels are used, so every machine makes the same partition.
    """

    STAGE: ClassVar = "stages.partition:partition"

    features: Annotated[File, Reads("features")] = Field(description="features to deal to clients")
    out: Annotated[File, Writes("partition")] = Field(description="partition file")
    _export = "also a .csv of rows"
    export: FileOut = Field(default=None, kw_only=True, description=_export)


def _flags(names: list[str]) -> str:
    return ", ".join(map(flag, names))
