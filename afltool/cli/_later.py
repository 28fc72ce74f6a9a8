"""Commands whose options are made when one of them is asked for: `run` has hundreds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer
import typer.core


class Later(typer.core.TyperCommand):
    """A command of which only the name and the help are known until more is asked."""

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        self.make = known["callback"].make
        del self.params, self.callback

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback"):
            raise AttributeError(f"a command has no {name!r}")
        app = typer.Typer(add_completion=False)
        app.command(self.name)(self.make())
        made = typer.main.get_command(app)
        self.params, self.callback = made.params, made.callback
        return getattr(self, name)

    def get_params(self, context: Any) -> list[Any]:
        return quick(super().get_params(context))


def quick(parameters: Iterable[Any]) -> list[Any]:
    """Parameters that take plain words as they are, as Typer would.

    Typer converts by pydantic, even what was not given; its import takes as long as NumPy's.
    """
    found = [*parameters]
    for one in found:
        if "process_value" not in vars(one):
            one.process_value = partial(_process, one, one.process_value)
    return found


def _process(parameter: Any, checked: Callable[..., Any], context: Any, value: Any) -> Any:
    """What the value of a parameter becomes; ``checked``: how Typer converts it."""
    several = parameter.multiple or parameter.nargs == -1
    given = value if several else [value]
    kind = parameter.type_descriptor.annotation
    one = next(iter(get_args(kind)), kind)
    if (parameter.required and not value) or not all(_is_plain(x, one) for x in given or ()):
        return checked(context, value)
    made = [None if x is None else one(x) for x in given or ()]
    found = (made if given else ()) if several else made[0]
    return parameter.callback(context, parameter, found) if parameter.callback else found


def _is_plain(word: Any, kind: Any) -> bool:
    """Whether a word, or None for no word, is of a kind that no check can refuse."""
    if word is None or kind is bool:
        return word is None or isinstance(word, bool)
    if kind is int:
        return str(word).isascii() and str(word).isdigit() and len(str(word)) < 10
    return kind in (str, Path) and (isinstance(word, Path) or word.isascii())


class _Postponed(ModuleType):
    """Stands for a module until something in it is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def postpone(*names: str) -> None:
    """Load these parts of packages when something in them is used.

    SciPy's arrays import all of NumPy; what compiles Fortran and what tests take half of the time.
    """
    for name in names:
        package, _, part = name.rpartition(".")
        if name not in sys.modules:
            sys.modules[name] = _Postponed(name)
            setattr(import_module(package), part, sys.modules[name])


def add_later(
    app: typer.Typer, name: str, says: str | None, make: Callable[[], Callable[..., Any]]
) -> None:
    """Add a command to an app; ``make`` gives the function that Typer makes it of."""

    def later() -> None:
        """Stands for the function until it is made."""

    later.__doc__ = says
    vars(later)["make"] = make  # Typer hands it on with the name and the text
    app.command(name, cls=Later)(later)


def made_later(make: Callable[[], typer.Typer]) -> type[typer.core.TyperGroup]:
    """A group whose commands are made when one of them, or all, are asked for."""

    class Group(typer.core.TyperGroup):
        @cached_property
        def _made(self) -> dict[str, Any]:
            made: Any = typer.main.get_command(make())  # a group, as there are several commands
            return dict(made.commands)

        @property
        def commands(self) -> Any:
            return self._made

        @commands.setter
        def commands(self, known: Any) -> None:
            """What Typer knows of: nothing."""

    return Group
