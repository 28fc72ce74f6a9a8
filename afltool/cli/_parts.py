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
from typing import Any

import typer
import typer.core

from ..doors import left_out, opened

COMMANDS = "afltool.commands"
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
        return {**self.own, **self.added(), **self.own}

    @commands.setter
    def commands(self, own: Any) -> None:
        self.own = own

    def get_command(self, context: Any, name: str) -> Any:
        return self.own.get(name) or self.added().get(name)

    def added(self) -> Mapping[str, Any]:
        """The commands that other parts add to the group of this name."""
        return dict(getattr(added().get(self.name or ""), "commands", {}))


@cache
def added() -> Mapping[str, Any]:
    """Commands and groups of commands that other parts add, by name."""
    found: Found = {}
    for name, part in opened(COMMANDS).items():
        app = typer.Typer()
        with left_out(name):
            getattr(part, "add_to", lambda app: None)(app)
            _join(found, typer.main.get_group(app).commands)
    return found


def _join(found: Any, more: Mapping[str, Any]) -> None:
    """Add commands; the first of a name stays, and groups of one name become one."""
    for name, command in more.items():
        known = found.setdefault(name, command)
        if known is not command:
            _join(getattr(known, "commands", {}), getattr(command, "commands", {}))
