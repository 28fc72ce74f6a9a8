"""The command `check-plugin`: whether a plug-in holds what commands, files and sums rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..doors import FAILS, STAGES, doors, located
from ..errors import IncompleteError, UsageError
from ._console import say
from ._options import Json, add, print_json
from .app import COMMANDS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Check = tuple[str, bool]
#: Where the plug-ins of a group are listed, as text: the main part never imports the rivals.
REGISTRIES = {
    "heads": "heads:HEADS",
    "rivals": "rivals:METHODS",
    "datasets": "options.datasets:DATASETS",
    "backbones": "sources.backbones.families:FAMILIES",
    "schemes": "options.partition:SCHEMES",
    "embeddings": "sources.embeddings:READERS",
    "targets": "exporting:FORMATS",
}
#: Values of options that a scheme may need.
DEALT: dict[str, Any] = {"clients": 4, "alpha": 1.0, "shards_per_client": 2}
SOURCE = ("weight_names", "knows", "label", "published", "build", "state", "rename")


def add_to(app: typer.Typer) -> None:
    add(app, "check-plugin", check_plugin)


def check_plugin(
    name: Annotated[str, typer.Argument(help="the plug-in's name, such as that of its head")],
    as_json: Json = False,
) -> None:
    """Check a plug-in: that it loads, and that its head's sums, files and digests hold the laws."""
    groups = [*(f"afltool.{one}" for one in REGISTRIES), STAGES, COMMANDS]
    every = {group: doors(group) for group in groups}
    found = [(group, one[name]) for group, one in every.items() if name in one]
    if not found:
        names = sorted({one for group in groups for one in every[group]})
        raise UsageError(f"no installed package has a plug-in {name!r}; there are {names}")
    failed = [one for group, door in found for one in _checked(group, door, as_json) if not one[1]]
    if failed:
        raise IncompleteError(f"{len(failed)} checks of the plug-in {name} failed")


def _checked(group: str, door: EntryPoint, as_json: bool) -> list[Check]:
    package = door.dist and f"{door.dist.name} {door.dist.version}"
    checks = []
    for law, holds in _safe(_checks(group, door)):
        checks.append((law, holds))
        if not as_json:
            say(f"{'ok   ' if holds else 'FAILS'}  {law}")
    if as_json:
        each = [{"check": law, "holds": holds} for law, holds in checks]
        print_json({"group": group, "name": door.name, "package": package, "checks": each})
    else:
        say(f"{door.name}: {group} of {package} ({door.value})")
    return checks


def _safe(checks: Iterable[Check]) -> Iterator[Check]:
    """The checks; what one of them raises is a check that fails."""
    try:
        yield from checks
    except FAILS as error:
        yield f"without an error: {type(error).__name__}: {error}", False


def _checks(group: str, door: EntryPoint) -> Iterator[Check]:
    found, kind = door.load(), group.rpartition(".")[2]
    yield "it can be loaded", True
    if kind in REGISTRIES:
        yield "afltool takes it", door.name in located(f"..{REGISTRIES[kind]}", __package__)
        yield from _OF_GROUP[kind](door.name, found)


def _of_head(name: str, _: Any) -> Iterator[Check]:
    from ..plans.config import FIELDS
    from ..stages._laws import laws

    yield from laws(name, set(FIELDS))


def _of_scheme(name: str, _: Any) -> Iterator[Check]:
    import numpy as np

    from ..options.partition import SCHEMES, PartitionOptions
    from ..partitions.dealing import assign

    given = {one: DEALT[one] for one in SCHEMES[name][0]}
    o, labels = PartitionOptions(scheme=name, **given), np.arange(60) % 3
    ids, order = (
        np.array([b"%02d" % i for i in range(60)]),
        np.random.default_rng(0).permutation(60),
    )
    one, again, mixed = (
        assign(ids[rows], labels[rows], 3, o) for rows in (slice(None), slice(None), order)
    )
    names = len(one.names)
    yield "every row has a client", bool(((one.client >= 0) & (one.client < names)).all())
    yield "the same rows are dealt alike", bool((one.client == again.client).all())
    yield "the order of the rows does not matter", bool((one.client[order] == mixed.client).all())


def _has(names: Iterable[str], _: str, found: Any) -> Iterator[Check]:
    for name in names:
        yield f"it has {name}", callable(getattr(found, name, None))


def _of_dataset(_: str, found: Any) -> Iterator[Check]:
    from importlib import import_module

    yield from _has(("open_rows",), "", import_module(found.module))


def _of_rival(name: str, _: Any) -> Iterator[Check]:
    yield from located("..rivals.laws:laws", __package__)(name)


_OF_GROUP: dict[str, Callable[[str, Any], Iterator[Check]]] = {
    "heads": _of_head,
    "rivals": _of_rival,
    "datasets": _of_dataset,
    "backbones": partial(_has, SOURCE),
    "schemes": _of_scheme,
    "embeddings": partial(_has, ("__call__",)),
    "targets": partial(_has, ("pack", "run")),
}
