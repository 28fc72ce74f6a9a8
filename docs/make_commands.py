"""Writes docs/commands.md from the commands themselves; a test keeps the two equal.

python docs/make_commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from afltool.cli.app import app

PAGE = Path(__file__).with_name("commands.md")


def of_heads(parameter: Any) -> bool:
    """Whether an option is one of heads, which their own commands describe."""
    return (parameter.rich_help_panel or "").startswith("Options of the head")


def commands(group: Any, name: str) -> list[tuple[str, Any]]:
    """Every command below a group, with its full name."""
    found: list[tuple[str, Any]] = []
    for word in group.list_commands(None):
        command = group.get_command(None, word)
        full = f"{name} {word}"
        found += commands(command, full) if hasattr(command, "list_commands") else [(full, command)]
    return found


def page() -> str:
    """The reference: purpose, arguments and options of every command."""
    lines = ["# Commands", "", "Made by `python docs/make_commands.py`; do not edit.", ""]
    lines += ["Global options come first: `afltool -q COMMAND …` (`--quiet`), `-v` (`--verbose`),"]
    lines += ["`--version`, `--events FILE`"]
    lines += ["([what happens when](format.md), a line of JSON an event; `-` is stderr)."]
    lines += ["Every command takes `-h` and `--help-all`.", ""]
    for name, command in commands(typer.main.get_command(app), "afltool"):
        lines += [f"## {name}", "", " ".join((command.help or "").split()), ""]
        lines += ["| option | meaning | default |", "| --- | --- | --- |"]
        lines += [row(p) for p in command.params if not of_heads(p) and p.name != "help_all"]
        if any(map(of_heads, command.params)):
            lines += ["", "Beside these, the options of the head: see `afltool head` below."]
        lines += [""]
    return "\n".join(lines)


def row(parameter: Any) -> str:
    """One line of the table."""
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{o}`" for o in parameter.opts)
    default = parameter.default
    if parameter.required:
        shown = "required"
    elif default is None or default is False or default == "" or callable(default):
        shown = ""
    else:
        shown = f"`{default}`"
    text = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| {names} | {text} | {shown} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
