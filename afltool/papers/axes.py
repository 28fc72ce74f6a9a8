"""Every option of a cell by name, defaults too: the axes of tables, and defaults that changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import UsageError
from ..heads import OPTIONS, make_options
from ..options import flag
from ..plans.config import FIELDS, PARTS, HereOptions
from ..plans.summary import PRESET, plain
from .baselines import made_settings, own_names
from .cells import LABEL, Cell


def axes_of(cell: Cell) -> dict[str, Any]:
    """Every option of a cell by its flat name, defaults too, and ``head``, its name in tables."""
    axes = resolved(cell)
    axes |= {k: plain(v) for k, v in cell.setting.items() if k != LABEL and k not in NO_AXES}
    return {**axes, "head": cell.label}


def resolved(cell: Cell) -> dict[str, Any]:
    """The options of a cell as the program resolves them; of a baseline those that are given."""
    axes: dict[str, Any] = {}
    for part in ("extract", "partition", "local_stats", "aggregate"):
        options, names = getattr(cell.config, part), PARTS[part][1]
        for f in () if options is None else fields(options):
            if f.metadata["in_run"] and f.metadata["in_result"]:
                axes[names.get(f.name, f.name)] = plain(getattr(options, f.name))
    return axes | _of_head(cell)


def _of_head(cell: Cell) -> dict[str, Any]:
    name = cell.config.own.head
    if cell.method is not None:
        called = {own: name for name, own in own_names(cell.method).items()}
        return {called[k]: plain(v) for k, v in cell.settings.items()}
    if name not in OPTIONS:
        return {}
    try:
        found = make_options(name, cell.config.all_head_options()).as_dict()
    except UsageError:  # a cell that cannot run has no result, only the options that it was given
        found = cell.config.all_head_options()
    return {"head_seed" if k == "seed" else k: plain(v) for k, v in found.items()}


#: Paths, and how a run uses its machine.
NO_AXES = {"train_features", "test_features", "data_root", "store", "cache"}
NO_AXES |= {f.name for f in fields(HereOptions)}


def changed_default(cell: Cell, found: Mapping[str, Any]) -> str | None:
    """An option that has another value now than when the summary ``found`` was written, in words.

    The key of a cell holds the options that were given. If a default or a preset has changed since
    then, the result is that of another setting.
    """
    then = found.get("options" if cell.method is None else "settings")
    if not isinstance(then, Mapping):
        return None
    for name, value in _now(cell).items():
        if name in then and plain(then[name]) != value:
            return f"{flag(name)} was {then[name]} and is {value} now"
    return None


def _now(cell: Cell) -> dict[str, Any]:
    """The options that decide the result, as the program resolves them now; no paths."""
    if cell.method is not None:
        settings = made_settings(cell.method, cell.settings).as_dict()
        return {k: plain(v) for k, v in settings.items() if v != "auto"}
    return {
        name: value
        for name, value in resolved(cell).items()
        if name not in ("head", PRESET) and "Path" not in str(getattr(FIELDS.get(name), "type", ""))
    }
