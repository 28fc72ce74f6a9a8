"""Checks the options of a scheme: which it needs, which it may have, and their ranges."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ..options.partition import SCHEMES
from .common import SchemeOptions

_PFL_LEAST = 10  # the least rows of a client in both published programs


_PFL_CLASSES = 10  # classes a client in AFL's program, which ignores its own option for them


_DRAWS, _DRAW_WORK = 1000, 80_000_000  # limits of repeated draws, so that they end in seconds


_RANGES: dict[str, tuple[float, float]] = {
    "clients": (1, 2**31 - 1),
    "alpha": (1e-100, 1e100),
    "shards_per_client": (1, 2**31 - 1),
    "min_size": (0, 2**63 - 1),
}


def validated_options(
    scheme: str, n: int, n_classes: int, seed: int, values: dict[str, Any]
) -> SchemeOptions:
    """Refuse with `UsageError` what is missing, not the scheme's, or out of range."""
    given = {name: value for name, value in values.items() if value is not None}
    _check_takes(scheme, given)
    published = scheme.endswith("-pfl")
    # The legacy generator takes 32 bits of seed.
    _check_range("seed", seed, 0, 2**32 - 1 if published else 2**63 - 1)
    for name, (low, high) in _RANGES.items():
        _check_range(name, given.get(name, low), low, high)
    defaults = {"min_size": _PFL_LEAST, "shards_per_client": _PFL_CLASSES} if published else {}
    chosen = defaults | given
    rows, clients = chosen.get("clients", 0) * chosen.get("min_size", 0), chosen.get("clients", 0)
    if "alpha" in given and rows > n:
        raise UsageError(
            f"{scheme}: {clients} clients of at least min-size = {chosen['min_size']} rows "
            f"need {rows} rows, found {n}. Take fewer clients or a smaller min-size; an empty "
            "client is harmless, its statistics are zero"
        )
    # Measured: a topped-up draw moves rows through Python lists and costs six times a plain one.
    work = (6 if given.get("top_up") else 1) * (n + 4 * clients * n_classes)
    draws = min(max(_DRAW_WORK // max(work, 1), 2), _DRAWS)
    return SchemeOptions(n_classes, seed, max_draws=draws, **chosen)


def _check_takes(scheme: str, given: dict[str, Any]) -> None:
    if scheme not in SCHEMES:
        raise UsageError(f"scheme: expected one of {', '.join(SCHEMES)}, found {scheme!r}")
    needs, may = (_of_rows(names) for names in SCHEMES[scheme])
    missing = sorted(needs - given.keys())
    foreign = sorted(name for name in given.keys() - needs - may if given[name])
    if missing or foreign:
        raise UsageError(
            f"scheme {scheme} "
            + (f"needs {_spoken(missing)}" if missing else f"does not take {_spoken(foreign)}")
            + f". It needs {_spoken(sorted(needs))}"
            + (f" and may have {_spoken(sorted(may))}" if may else "")
        )


def _of_rows(names: frozenset[str]) -> set[str]:
    """The options of a command as those of `assign`: a table's column has been read already."""
    return {"attribute" if name == "table" else name for name in names} - {"column"}


def _spoken(names: list[str]) -> str:
    return ", ".join(name.replace("_", "-") for name in names)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # NaN fails as well
        raise UsageError(
            f"{_spoken([name])}: expected a number from {low:g} to {high:g}, found {value!r}"
        )


def check_share(name: str, value: float, of: str) -> None:
    if not 0 <= value < 1:
        raise UsageError(f"{name}: expected a share of the {of} in [0, 1), found {value!r}")
