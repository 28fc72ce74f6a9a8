"""A tree of options with lists in it, and the settings that it describes.

A list of values is an axis. An array of tables (``[[block]]``, under any name) is an axis whose
points are tables, which may hold axes of their own: a union. Several axes multiply, in the order of
the file; the last one varies fastest. A plain table groups options and means nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from ...errors import UsageError

Tree = Mapping[str, Any]
Setting = dict[str, Any]


def blocks(value: Any) -> Sequence[Tree] | None:
    """The tables of a union, or the one table; None for an option."""
    if isinstance(value, Mapping):
        return [value]
    union = isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value)
    return value if union else None


def values(name: str, value: Any, several: Collection[str] = ()) -> list[Any]:
    """The points of an axis; one for a value, which may itself be a list (``several``)."""
    if not isinstance(value, list):
        return [value]
    return value if name not in several or any(isinstance(v, list) for v in value) else [value]


def size(tree: Tree, several: Collection[str] = ()) -> int:
    """The number of settings of a tree, computed without expanding it."""
    return prod(
        len(values(name, value, several))
        if (inner := blocks(value)) is None
        else sum(size(one, several) for one in inner)
        for name, value in tree.items()
    )


def settings(tree: Tree, several: Collection[str] = ()) -> Iterator[Setting]:
    """Every setting of a tree, in order; a name inside a block replaces the same name outside."""
    axes: list[tuple[bool, list[Setting]]] = []  # whether of blocks, and its points
    for name, value in tree.items():
        if (inner := blocks(value)) is None:
            axes.append((False, [{name: one} for one in values(name, value, several)]))
        else:
            axes.append((True, [one for block in inner for one in settings(block, several)]))
    for chosen in product(*(points for _, points in axes)):
        setting: Setting = {}
        for nested in (False, True):
            for (is_block, _), point in zip(axes, chosen, strict=True):
                setting |= point if is_block == nested else {}
        yield setting


def rewritten(tree: Tree, change: Callable[[str, Any], tuple[str, Any] | None]) -> Setting:
    """The tree with what ``change`` makes of the name and value of each option; None: left out."""
    setting: Setting = {}
    for name, value in tree.items():
        inner = blocks(value)
        if inner is not None:
            those = [rewritten(one, change) for one in inner]
            setting[name] = those[0] if isinstance(value, Mapping) else those
        elif (option := change(name, value)) is not None:
            setting[option[0]] = option[1]
    return setting


def replace_values(tree: Tree, given: Mapping[str, Any]) -> Setting:
    """The tree with the values of ``given`` at every level, or at the top where no level has it."""
    met: set[str] = set()

    def change(name: str, value: Any) -> tuple[str, Any]:
        met.add(name)
        return name, given.get(name, value)

    setting = rewritten(tree, change)
    return {**setting, **{name: value for name, value in given.items() if name not in met}}


def select_data_set(tree: Tree, data: Any) -> Setting:
    """The tree with those blocks of a union that have this data set; the first one if none has."""
    setting = dict(tree)
    for key, value in tree.items():
        those = blocks(value) or ()
        if len(those) > 1 and any("data" in one for one in those):
            if isinstance(data, list):
                raise UsageError("the study has other options for each data set: give one --data")
            fitting = [one for one in those if data in values("data", one.get("data"))]
            setting[key] = fitting or those[:1]
    return setting


def drop_keys(tree: Tree, names: Collection[str]) -> Setting:
    return rewritten(tree, lambda name, value: None if name in names else (name, value))
