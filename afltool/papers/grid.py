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


def size(tree: Tree, several: Collection[str] = ()) -> int:
    """The number of settings of a tree, computed without expanding it."""
    return prod(_width(name, value, several) for name, value in tree.items())


def _width(name: str, value: Any, several: Collection[str]) -> int:
    if isinstance(value, Mapping):
        return size(value, several)
    if is_union(value):
        return sum(size(one, several) for one in value)
    return len(value) if is_axis(name, value, several) else 1


def settings(tree: Tree, several: Collection[str] = ()) -> Iterator[Setting]:
    """Every setting of a tree, in order; ``several``: options whose value is itself a list.

    A name inside a block replaces the same name outside.

    >>> list(settings({"a": [1, 2], "block": [{"b": 1}, {"a": 3}]}))
    [{'a': 1, 'b': 1}, {'a': 3}, {'a': 2, 'b': 1}, {'a': 3}]
    """
    axes = [list(_points(name, value, several)) for name, value in tree.items()]
    for chosen in product(*axes):
        setting: Setting = {}
        inner: Setting = {}
        for nested, point in chosen:
            (inner if nested else setting).update(point)
        yield {**setting, **inner}


def _points(name: str, value: Any, several: Collection[str]) -> Iterator[tuple[bool, Setting]]:
    """The points of one axis: (is of a block or table, options)."""
    if isinstance(value, Mapping):
        yield from ((True, point) for point in settings(value, several))
    elif is_union(value):
        for one in value:
            yield from ((True, point) for point in settings(one, several))
    elif is_axis(name, value, several):
        yield from ((False, {name: one}) for one in value)
    else:
        yield False, {name: value}


def is_union(value: Any) -> bool:
    """Whether a value is an array of tables."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def is_axis(name: str, value: Any, several: Collection[str]) -> bool:
    """Whether a value is a list of values, rather than one value that is a list."""
    if not isinstance(value, list):
        return False
    return name not in several or any(isinstance(one, list) for one in value)


def rewritten(tree: Tree, change: Callable[[str, Any], tuple[str, Any] | None]) -> Setting:
    """The tree with what ``change`` makes of the name and value of each option; None: left out."""
    setting: Setting = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            setting[name] = rewritten(value, change)
        elif is_union(value):
            setting[name] = [rewritten(one, change) for one in value]
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
    return any(
        name in one or in_blocks(one, name)
        for value in tree.values()
        for one in ([value] if isinstance(value, Mapping) else value if is_union(value) else [])
    )


def distributed(
    tree: Tree,
    several: Collection[str],
    but: Collection[str],
    takes: Callable[[Setting, str], bool],
) -> tuple[list[Setting], dict[str, list[Setting]]]:
    """Every setting of a tree without the options that it does not take, and who lacks which.

    ``but``: options that all settings take.

    >>> tree = {"head": ["a", "b"], "x": 1}
    >>> distributed(tree, (), {"head"}, lambda one, _: one["head"] == "b")
    ([{'head': 'a'}, {'head': 'b', 'x': 1}], {'x': [{'head': 'a'}]})
    """
    found: list[Setting] = []
    left: dict[str, list[Setting]] = {}
    for setting in settings(tree, several):
        own = {k: v for k, v in setting.items() if k in but or takes(setting, k)}
        found.append(own)
        for name in setting.keys() - own.keys():
            left.setdefault(name, []).append(own)
    return found, {name: left[name] for name in sorted(left)}


def divided(tree: Tree, name: str, wanted: Sequence[Any]) -> Setting:
    """The tree where blocks that differ in ``name`` keep those of the ``wanted`` values they have.

    A value that no block of a union has goes to the first block that has ``name``; blocks that get
    none are left out. So a study of several data sets runs with the settings of the given one.

    >>> two = {"block": [{"data": "a", "s": 4}, {"data": ["b", "c"], "s": 10}]}
    >>> divided(two, "data", ["c"])["block"], divided(two, "data", ["d"])["block"]
    ([{'data': ['c'], 's': 10}], [{'data': ['d'], 's': 4}])
    """
    setting: Setting = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            setting[key] = divided(value, name, wanted)
        elif is_union(value):
            blocks = [divided(one, name, wanted) for one in value]
            setting[key] = _shared_out(blocks, name, wanted)
        else:
            setting[key] = value
    return setting


def _shared_out(blocks: list[Setting], name: str, wanted: Sequence[Any]) -> list[Setting]:
    having = [i for i, one in enumerate(blocks) if name in one]
    theirs: dict[int, list[Any]] = {i: [] for i in having}
    for value in wanted if having else ():
        which = [i for i in having if value in _values(blocks[i][name])]
        for i in which or having[:1]:
            theirs[i].append(value)
    return [
        {**one, name: theirs[i]} if i in theirs else one
        for i, one in enumerate(blocks)
        if theirs.get(i, True)
    ]


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def without(tree: Tree, names: Collection[str]) -> Setting:
    """The tree without the options of these names, at every level."""
    return rewritten(tree, lambda name, value: None if name in names else (name, value))
