"""What is installed: packages that add to this one, by doors, and which build of it this is.

Doors are the entry points of a group. The main part imports nothing that is behind a door; it opens
the door when it needs what is there. The builds are `afltool`, and `afltool-light`, which leaves
PyTorch out; both have the same modules, so an environment has one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import UsageError
from .progress import log

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

USED: set[tuple[str, str]] = set()  # packages of plug-ins that made something, with their versions
#: What a module of somebody else may raise when it is loaded: anything but Ctrl-C.
FAILS = (Exception, SystemExit)
TORCH = ("torch", "torchvision")  # what the light build leaves out
FULL = "pip uninstall afltool-light, then pip install afltool (in a checkout: pip install .)"

T = TypeVar("T")


@cache
def entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; ``load()`` of one imports what it stands for."""
    from importlib.metadata import entry_points

    return {one.name: one for one in sorted(entry_points(group=group), key=lambda e: e.name)}


@contextmanager
def warn_left_out(what: str) -> Iterator[None]:
    """Name another part that cannot be loaded, and go on without it."""
    try:
        yield
    except FAILS as error:
        why = f"{type(error).__name__}: {error}"
        log.warning("the part %s cannot be loaded and is left out: %s", what, why)


class Registry(Mapping[str, T]):
    """What afltool has by name, and what plug-ins add by a group of entry points.

    Plug-ins are loaded when a name is looked for that afltool does not have, or all names are.
    ``made(text, found)`` makes an entry of the text of an entry point, MODULE or MODULE:NAME, and
    of what that stands for. What cannot be loaded, or has a name of afltool's own, is left out.
    """

    def __init__(
        self, group: str, own: dict[str, T], made: Callable[[str, Any], Any] = lambda text, _: text
    ) -> None:
        self.group, self.data, self.made = group, own, made

    @cached_property
    def added(self) -> dict[str, T]:
        """The entries of plug-ins, by name."""
        found = self.__dict__["added"] = dict[str, T]()  # first: a plug-in may look here itself
        for name, door in entry_points(self.group).items():
            with warn_left_out(f"{name} ({door.value}, {self.group})"):
                if name in self.data:
                    raise TypeError(f"afltool itself has a {name!r}")
                found[name] = self.made(door.value, door.load())
        return found

    def __getitem__(self, name: str) -> T:
        return self.data[name] if name in self.data else self.added[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*self.data, *self.added)

    def __len__(self) -> int:
        return len(self.data) + len(self.added)

    def version(self, name: str) -> dict[str, str]:
        """What a recipe says of what is used by this name: package and version of a plug-in."""
        package = (
            None if name in self.data or name not in self else entry_points(self.group)[name].dist
        )
        if package is None:
            return {}
        USED.add((package.name, package.version))
        return {self.group: f"{package.name} {package.version}"}


def import_object(text: str, package: str | None = None) -> Any:
    """What MODULE:NAME stands for; a module that begins with a dot is of ``package``."""
    module, _, name = text.partition(":")
    return getattr(import_module(module, package), name)


def install(extra: str) -> str:
    """The line that installs an extra: of the build that is here, from where it was installed."""
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    here = [one for name in ("afltool-light", "afltool") for one in distributions(name=name)]
    text = here[0].read_text("direct_url.json") if here else None
    url = urlsplit(json.loads(text or "{}").get("url", ""))
    name = here[0].name if here else "afltool"
    return f"pip install '{unquote(url.path) if url.scheme == 'file' else name}[{extra}]'"


def need(what: str, extra: str, *packages: str, error: type[Exception] = UsageError) -> None:
    """Raise ``error`` with what to install, where one of these packages is not there."""
    for package in packages:
        if find_spec(package) is None:
            raise error(f"{what} needs {package}: {install(extra)}")


def require_torch(what: str) -> None:
    """`UsageError` with what to install, where PyTorch is not there; asking takes no time."""
    if find_spec("torch") is None:
        raise UsageError(f"{what} needs PyTorch, which is not installed: {FULL}")
