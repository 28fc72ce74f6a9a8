"""The heads by name. Importing this package costs nothing; a head's module loads when it is used.

To add a head: a folder here with ``options/__init__.py`` (``OPTIONS``, a class derived from
`options.HeadOptions`) and ``head.py`` (``HEAD``, a class derived from `base.Head`), or one module
with both; and its line in `OWN_HEADS` of `options.common`. Options of a module that is heavy to
load are named in `options.OF_MODULES`. What `export` writes of a head is in `graphs`, or in its own
``graph.py`` (``graph``); a head without a graph cannot be exported.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..options.base import Absent, Options, fields_of, made_for
from ..options.common import OWN_HEADS, files_in, files_of, refuse_files
from ..plugins import Registry
from .options import OF_MODULES, HeadOptions

if TYPE_CHECKING:
    from .base import Head


def _part(module: Any, part: str) -> Any:
    return import_module(f".{part}", module.__name__) if hasattr(module, "__path__") else module


def _checked(module: str, version: Any) -> str:
    """The module of a plug-in, if the command line can have its options."""
    options = _part(version, "options").OPTIONS
    if not issubclass(options, HeadOptions):
        raise TypeError(f"{module}.OPTIONS is no class of heads.options.HeadOptions")
    return module


HEADS: Registry[str] = Registry("afltool.heads", OWN_HEADS, _checked)
#: Heads that no federation can begin with: something else has trained them.
TRAINED = {"network": ".network", "calibrated": ".calibration"}
#: What sites gather for as for a head, and nobody solves.
MEASURED = {"evaluation": ".evaluation"}
#: The round before all heads: how features are scaled; its file scores nothing.
BEFORE = {"scaling": ".scaling"}
#: Every name that a head's file may have.
KNOWN: Mapping[str, str] = ChainMap(TRAINED, MEASURED, BEFORE, HEADS)


class _OptionClasses(Mapping[str, type[HeadOptions]]):
    """The options class of each head by the head's name; light to load."""

    def __getitem__(self, name: str) -> type[HeadOptions]:
        if name not in HEADS:
            raise KeyError(name)
        return _options(name)

    def __iter__(self) -> Iterator[str]:
        return iter(HEADS)

    def __len__(self) -> int:
        return len(HEADS)


OPTIONS: Mapping[str, type[HeadOptions]] = _OptionClasses()


class Names(Collection[str]):
    """Names in several places, of which one is looked at for a name that is in none before it."""

    def __init__(self, places: Callable[[], Iterator[Collection[str]]]) -> None:
        self._places = places

    def __contains__(self, name: object) -> bool:
        return any(name in place for place in self._places())

    def __iter__(self) -> Iterator[str]:
        return iter({name for place in self._places() for name in place})

    def __len__(self) -> int:
        return len(set(self))


def _names() -> Iterator[set[str]]:
    for name in (*OF_MODULES, *OPTIONS):  # what is light first
        yield {*fields_of(_options(name))} - {"seed"}


#: The options of all heads; those of a head are loaded for a name that no lighter one has.
HEAD_NAMES = Names(_names)


def _module(name: str, part: str) -> Any:
    """The part of a head's folder, or the module that is the whole head; `KeyError` for no head."""
    return _part(import_module(KNOWN[name], __name__), part)


def _options(name: str) -> type[HeadOptions]:
    options: type[HeadOptions] = OF_MODULES.get(name) or _module(name, "options").OPTIONS
    return options


def head_class(name: str) -> type[Head]:
    """The class of the head called ``name``; `UsageError` names those that exist."""
    _check_name(name)
    head: type[Head] = _module(name, "head").HEAD
    return head


def options_class(name: str) -> type[HeadOptions]:
    """The options class of the head called ``name``; `UsageError` names those that exist."""
    _check_name(name)
    return _options(name)


def refuse_shared_with(name: str, head_options: Mapping[str, Any], options: Options) -> None:
    """`options.common.refuse_files` of options beside which those of a head name files, too."""
    refuse_files([*files_of(options), *files_in(options_class(name), head_options)])


def make_options(name: str, options: Mapping[str, Any] | None = None) -> HeadOptions:
    """The options of the head called ``name``, checked; those not given keep their defaults."""
    cls, given = options_class(name), dict(options or {})
    for option, gone in cls.GONE.items():
        left = gone.value if isinstance(gone, Absent) else gone
        if (found := given.pop(option, left)) != left:
            raise UsageError(
                f"the head {name!r} has {option!r} no longer; found {found!r}, which afltool 0.3 "
                "makes and reads"
            )
    return made_for(f"the head {name!r}", cls, given)


def make_head(name: str, options: Mapping[str, Any] | None = None) -> Head:
    """A new head before its first phase; options not given keep their defaults."""
    return head_class(name).begin(make_options(name, options))


def _check_name(name: str) -> None:
    if name not in KNOWN:
        raise UsageError(f"there is no head {name!r}; the heads are {', '.join(HEADS)}")
