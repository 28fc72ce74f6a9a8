"""What other parts and plug-ins add to the commands, through the doors `afltool.commands`.

Behind each door is a module. Any of these functions may be missing::

    add_to(app)           adds commands to a Typer app; a group of a known name, as plot, is joined
    status_of(folder)     for `status`: what it says as JSON, and a function that prints it
    runs_by_name(paths)   for `plot rounds`: its runs by name of a line, and the paths that are left

The last two answer None where nothing is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
import typer.core

from ..doors import left_out, opened
from ._later import quick

COMMANDS = "afltool.commands"
# Beside this one, as `-h` shows them.
MODULES = ("data", "road", "look", "batch", "privacy", "session", "plugins")
OFTEN = ("road", "look")  # where a word is looked for first
Found = dict[str, Any]  # click's commands by name


def ask(question: str, about: Any) -> Any:
    """The first answer of another part to a question; None where no part has one."""
    asked = (getattr(part, question, None) for part in opened(COMMANDS).values())
    answers = (answer(about) for answer in asked if answer is not None)
    return next((found for found in answers if found is not None), None)


class Group(typer.core.TyperGroup):
    """A group that opens the doors only for a word that is no command of the main part."""

    own: Found  # those of the main part

    @property
    def commands(self) -> Any:
        own = self.known()
        return {**own, **self.added(), **own}

    @commands.setter
    def commands(self, own: Any) -> None:
        self.own = own

    def get_command(self, context: Any, name: str) -> Any:
        return self.known(name).get(name) or self.added().get(name)

    def known(self, name: str | None = None) -> Found:
        """The commands of the main part; where one is asked for, at least that one."""
        return self.own

    def added(self) -> Mapping[str, Any]:
        """The commands that other parts add to the group of this name."""
        return dict(getattr(added().get(self.name or ""), "commands", {}))


class Commands(Group):
    """All commands; a module with some is loaded when none of those before it has the word."""

    def get_params(self, context: Any) -> list[Any]:
        return quick(super().get_params(context))

    def known(self, name: str | None = None) -> Found:
        if name is None:
            every = [one for module in MODULES for one in _of_module(module).items()]
            return dict(sorted(every, key=lambda one: hasattr(one[1], "commands")))  # groups last
        found = (_of_module(m) for m in sorted(MODULES, key=OFTEN.__contains__, reverse=True))
        return next((commands for commands in found if name in commands), {})

    def added(self) -> Mapping[str, Any]:
        return added()


@cache
def _of_module(name: str) -> Found:
    return _made(import_module(f".{name}", __package__))


@cache
def added() -> Mapping[str, Any]:
    """Commands and groups of commands that other parts add, by name; those of stages first."""
    found = dict(_of_module("outside"))
    for name, part in opened(COMMANDS).items():
        with left_out(name):
            _join(found, _made(part))
    return found


def _made(part: Any) -> Found:
    """What a part adds to an app."""
    app = typer.Typer()
    getattr(part, "add_to", lambda app: None)(app)
    return dict(typer.main.get_group(app).commands)


def _join(found: Any, more: Mapping[str, Any]) -> None:
    """Add commands; the first of a name stays, and groups of one name become one."""
    for name, command in more.items():
        known = found.setdefault(name, command)
        if known is not command:
            _join(getattr(known, "commands", {}), getattr(command, "commands", {}))
