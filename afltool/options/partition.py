"""Options of `partition`, and which of them each scheme needs or may have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..plugins import Registry
from .base import Choices, FileIn, FileOut, Input, Options, Result, flag, option
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
MOST = 2**31 - 1  # clients


@dataclass(frozen=True, kw_only=True)
class PartitionOptions(Options):
    """How the rows of a feature file are dealt to clients."""

    scheme: Annotated[str, Choices(SCHEMES)] = option("dirichlet", "partitioning scheme")
    alpha: float | None = option(
        None, "α of the Dirichlet distribution; small: few classes per client", ge=1e-100, le=1e100
    )
    clients: int | None = option(None, "number of clients K", ge=1, le=MOST)
    seed: int = option(0, "seed of the partition", ge=0, le=SEED)
    shards_per_client: int | None = option(
        None, "shards per client (pathological-pfl: classes)", ge=1, le=MOST
    )
    min_size: int | None = option(None, "redraw until each client has so many rows", ge=0, le=SEED)
    held_out: float = option(0.0, "fraction of clients held out for validation", ge=0, lt=1)
    label_noise: float = option(0.0, "fraction of rows with a random label", ge=0, lt=1)
    table: FileIn = option(None, "table of row ids and clients: .csv or .parquet")
    column: str | None = option(None, "column of --table with the clients (default: client)")
    top_up: bool = option(False, "dirichlet-pfl: top clients up to --min-size")

    def check(self) -> None:
        """Refuse options that the scheme lacks or does not take, and seeds that it cannot use."""
        needs, may = SCHEMES[self.scheme]
        given = {name for name in _OWN if getattr(self, name) not in (None, False)}
        if missing := sorted(needs - given):
            needed = f"it needs {_flags(needs)}" + (f" and may have {_flags(may)}" if may else "")
            wrong = f"is given without {_flags(missing)}; {needed}"
            raise UsageError(f"--scheme {self.scheme} {wrong}")
        if foreign := given - needs - may:
            raise UsageError(f"--scheme {self.scheme} does not take {_flags(foreign)}")
        if self.scheme.endswith("-pfl") and self.seed >= 2**32:
            raise UsageError(f"--seed of {self.scheme} is below 2^32; found {self.seed}")


def _flags(names: Collection[str]) -> str:
    return ", ".join(map(flag, sorted(names)))


@dataclass(frozen=True)
class Partition(PartitionOptions, Output):
    """Assign the rows of a feature file to clients; each row gets one client.

    Only row ids and labels are used, so every machine makes the same partition.
    """

    STAGE: ClassVar = "stages.partition:partition"

    features: Input = Field(description="feature file to partition")
    out: Result = Field(description="partition file")
    _: KW_ONLY
    export: FileOut = option(None, "write a .csv of rows and clients as well")
