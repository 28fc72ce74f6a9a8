"""Doors: what installed packages add to this one, by the entry points of a group.

The main part imports nothing that is behind a door; it opens the door when it needs what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from .progress import log

STAGES = "afltool.stages"  # the group of entry points by which stages come from outside

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def doors(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; ``load()`` of one imports what it stands for."""
    from importlib.metadata import entry_points  # only of commands that open a door

    return {one.name: one for one in sorted(entry_points(group=group), key=lambda e: e.name)}


@cache
def opened(group: str) -> dict[str, Any]:
    """What is behind the doors of a group, by name, without what cannot be loaded."""
    found = {}
    for name, door in doors(group).items():
        with left_out(f"{name} ({door.value})"):
            found[name] = door.load()
    return found


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Name another part that cannot be loaded, and go on without it."""
    try:
        yield
    except (ImportError, AttributeError, SyntaxError, TypeError) as error:
        log.warning("the part %s cannot be loaded and is left out: %s", what, error)
