"""What is installed: packages that add to this one, by doors, and which build of it this is.

Doors are the entry points of a group. The main part imports nothing that is behind a door; it opens
the door when it needs what is there. The builds are `afltool`, and `afltool-light`, which leaves
PyTorch out; both have the same modules, so an environment has one of them.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import UsageError
from .progress import log

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "afltool.commands"  # the group of entry points by which commands come
USED: set[tuple[str, str]] = set()  # packages of plug-ins that made something, with their versions
#: What a module of somebody else may raise when it is loaded: anything but Ctrl-C.
FAILS = (Exception, SystemExit)

T = TypeVar("T")


@cache
def _entry_points() -> Any:
    from importlib.metadata import entry_points

    return entry_points()


def doors(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; ``load()`` of one imports what it stands for."""
    found = _entry_points().select(group=group)
    return {one.name: one for one in sorted(found, key=lambda e: e.name)}


@cache
def behind(group: str, name: str) -> Any:
    """What is behind one door; None for what cannot be loaded, which is said once."""
    door = doors(group)[name]
    with left_out(f"{name} ({door.value})"):
        return door.load()
    return None


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Name another part that cannot be loaded, and go on without it."""
    try:
        yield
    except FAILS as error:
        why = f"{type(error).__name__}: {error}"
        log.warning("the part %s cannot be loaded and is left out: %s", what, why)


def asked(question: str, about: Any) -> Any:
    """The first answer of another part to a question; None where no part has one."""
    for name in doors(COMMANDS):
        answer = getattr(behind(COMMANDS, name), question, None)
        if answer is not None and (reply := answer(about)) is not None:
            return reply
    return None


class Registry(UserDict[str, T]):
    """What afltool has by name, and what plug-ins add by a group of entry points.

    Plug-ins are loaded when a name is looked for that afltool does not have, or when all names are.
    ``made(text, found)`` makes the entry of one: of the text of its entry point, MODULE or
    MODULE:NAME, and of what that stands for. One that cannot be loaded, or has a name of afltool's
    own, is named and left out.
    """

    def __init__(
        self, group: str, own: dict[str, T], made: Callable[[str, Any], Any] = lambda text, _: text
    ) -> None:
        super().__init__(own)
        self.group, self.made = group, made

    @cached_property
    def added(self) -> dict[str, T]:
        """The entries of plug-ins, by name."""
        found = self.__dict__["added"] = dict[str, T]()  # first: a plug-in may look here itself
        for name, door in doors(self.group).items():
            with left_out(f"{name} ({door.value}, {self.group})"):
                if name in self.data:
                    raise TypeError(f"afltool itself has a {name!r}")
                found[name] = self.made(door.value, door.load())
        return found

    def __missing__(self, name: str) -> T:
        return self.added[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self.added

    def __iter__(self) -> Iterator[str]:
        yield from self.data
        yield from self.added

    def __len__(self) -> int:
        return len(self.data) + len(self.added)

    def __bool__(self) -> bool:
        return True  # nothing is loaded to say so

    def version(self, name: str) -> dict[str, str]:
        """What a recipe says of what is used by this name: package and version of a plug-in."""
        package = None if name in self.data or name not in self else doors(self.group)[name].dist
        if package is None:
            return {}
        USED.add((package.name, package.version))
        return {self.group: f"{package.name} {package.version}"}


def located(text: str, package: str | None = None) -> Any:
    """What MODULE:NAME stands for; a module that begins with a dot is of ``package``."""
    module, _, name = text.partition(":")
    return getattr(import_module(module, package), name)


TORCH = ("torch", "torchvision")  # what the light build leaves out
FULL = "pip uninstall afltool-light, then pip install afltool (in a checkout: pip install .)"


def install(extra: str) -> str:
    """The line that installs an extra: of the build that is here, from where it was installed."""
    import json
    from importlib.metadata import distributions
    from shlex import quote
    from urllib.parse import unquote, urlsplit

    here = [one for name in ("afltool-light", "afltool") for one in distributions(name=name)]
    text = here[0].read_text("direct_url.json") if here else None
    url = urlsplit(json.loads(text or "{}").get("url", ""))
    source = unquote(url.path) if url.scheme == "file" else here[0].name if here else "afltool"
    return f"pip install {quote(f'{source}[{extra}]')}"


def need_torch(what: str) -> None:
    """`UsageError` with what to install, where PyTorch is not there; asking takes no time."""
    if find_spec("torch") is None:
        raise UsageError(f"{what} needs PyTorch, which is not installed: {FULL}")
