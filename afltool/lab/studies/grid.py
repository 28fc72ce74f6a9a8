"""A tree of options with lists in it, and the settings that it describes.

A list of values is an axis. An array of tables (``[[block]]``, under any name) is an axis whose
points are tables, which may hold axes of their own: a union. Several axes multiply, in the order of
the file; the last one varies fastest. A plain table groups options and means nothing else.

    alpha = [0.1, 0.05]              4 settings: each α with A and with B
    [[block]]
    head = "linear"                  A
    [[block]]
    head = "deepafl"                 B
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

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
    """Every setting of a tree, in order; ``several``: options whose value is itself a list.

    A name inside a block replaces the same name outside.

    >>> list(settings({"a": [1, 2], "block": [{"b": 1}, {"a": 3}]}))
    [{'a': 1, 'b': 1}, {'a': 3}, {'a': 2, 'b': 1}, {'a': 3}]
    """
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


def replaced(tree: Tree, given: Mapping[str, Any]) -> Setting:
    """The tree with the values of ``given`` for the options of these names, at every level.

    A name that is not in the tree is put at the top.
    """
    met: set[str] = set()

    def change(name: str, value: Any) -> tuple[str, Any]:
        met.add(name)
        return name, given.get(name, value)

    setting = rewritten(tree, change)
    return {**setting, **{name: value for name, value in given.items() if name not in met}}


def in_blocks(tree: Tree, name: str) -> bool:
    """Whether a block of a union has an option of this name."""
    every = (one for value in tree.values() for one in blocks(value) or ())
    return any(name in one or in_blocks(one, name) for one in every)


def divided(tree: Tree, name: str, wanted: Sequence[Any]) -> Setting:
    """The tree where blocks that differ in ``name`` keep those of the ``wanted`` values they have.

    A value that no block of a union has goes to the first block that has ``name``; blocks that get
    none are left out. So a study of several data sets runs with the settings of the given one.

    >>> two = {"block": [{"data": "a", "s": 4}, {"data": ["b", "c"], "s": 10}]}
    >>> divided(two, "data", ["c"])["block"], divided(two, "data", ["d"])["block"]
    ([{'data': ['c'], 's': 10}], [{'data': ['d'], 's': 4}])
    """
    setting = dict(tree)
    for key, value in tree.items():
        if isinstance(value, Mapping):
            setting[key] = divided(value, name, wanted)
        elif (inner := blocks(value)) is not None:
            those = [divided(one, name, wanted) for one in inner]
            have = [values(name, one[name]) for one in those if name in one]
            new = [v for v in wanted if not any(v in one for one in have)]
            theirs = [[v for v in wanted if v in one] + new * (not i) for i, one in enumerate(have)]
            shared = iter(theirs)
            those = [{**one, name: next(shared)} if name in one else one for one in those]
            setting[key] = [one for one in those if one.get(name, True)]
    return setting


def without(tree: Tree, names: Collection[str]) -> Setting:
    """The tree without the options of these names, at every level."""
    return rewritten(tree, lambda name, value: None if name in names else (name, value))
