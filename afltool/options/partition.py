"""Options of `partition`, and which of them each scheme needs or may have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..doors import Registry
from ..errors import UsageError
from . import Options, flag, option
from .shared import SEED

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
    scheme: str = option("dirichlet", _scheme, choices=SCHEMES, always=True, common=True)
    _alpha = "α of the Dirichlet distribution; a small α gives each client few classes"
    alpha: float | None = option(
        None, _alpha, at_least=1e-100, at_most=1e100, always=True, common=True
    )
    clients: int | None = option(
        None, "number of clients K", at_least=1, at_most=2**31 - 1, always=True, common=True
    )
    seed: int = option(0, "seed of the partition", at_least=0, at_most=SEED, always=True)
    shards_per_client: int | None = option(
        None, "shards for each client (pathological-pfl: classes)", at_least=1, at_most=2**31 - 1
    )
    min_size: int | None = option(
        None, "draw again until every client has this many rows", at_least=0, at_most=SEED
    )
    held_out: float = option(
        0.0, "share of the clients held out for validation", at_least=0, below=1, common=True
    )
    label_noise: float = option(
        0.0, "share of the rows that get another label at random", at_least=0, below=1
    )
    _table = (
        "table with a column of row ids (row, path, or the one that holds them all) and one "
        "of clients: .csv, .parquet or .json"
    )
    table: Path | None = option(None, _table)
    column: str | None = option(
        None, "column of --table whose values are the clients", unset="client"
    )
    top_up: bool = option(False, "dirichlet-pfl: fill the smallest clients up to --min-size")

    def check(self) -> None:
        check_scheme(self)


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
