"""Writes docs/commands.md, and the old names in CHANGELOG.md, from the commands; a test keeps them.

python docs/make_commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from afltool.cli.app import app
from afltool.renamed import RENAMED
from afltool.runs.config import FIELDS, HEAD_NAMES

PAGE = Path(__file__).with_name("commands.md")
CHANGES = PAGE.parents[1] / "CHANGELOG.md"
BEGIN, END = "<!-- old names: made by docs/make_commands.py -->\n", "<!-- end -->"


def of_heads(command: str, parameter: Any) -> bool:
    """Whether an option is one of heads, which their own commands describe."""
    within, _, own = parameter.name.rpartition("__")
    known = within in ("head_options", "options", "axes") and own in HEAD_NAMES
    return known and own not in FIELDS and not command.startswith("afltool head ")


def commands(group: Any, name: str) -> list[tuple[str, Any]]:
    """Every command below a group, with its full name."""
    found: list[tuple[str, Any]] = []
    for word in group.list_commands(None):
        command = group.get_command(None, word)
        full = f"{name} {word}"
        found += commands(command, full) if hasattr(command, "list_commands") else [(full, command)]
    return found


def page() -> str:
    """The reference: purpose, arguments and options of every command.

    An option that several commands have with the same words is described once, at the first.
    """
    lines = ["# Commands", "", "Made by `python docs/make_commands.py`; do not edit.", ""]
    lines += ["Global options come first: `afltool -q COMMAND …` (`--quiet`), `-v` (`--verbose`),"]
    lines += ["`--version`, `--events FILE`"]
    lines += ["([what happens when](format.md), a line of JSON an event; `-` is stderr)."]
    lines += [
        "Every command takes `-h` and `--help-all`. An option is described at the first command"
    ]
    lines += ["that has it; the others name it.", ""]
    described: dict[str, str] = {}
    for name, command in commands(typer.main.get_command(app), "afltool"):
        lines += [f"## {name}", "", " ".join((command.help or "").split()), ""]
        lines += [*options(name, command, described), ""]
    return "\n".join(lines)


def options(name: str, command: Any, described: dict[str, str]) -> list[str]:
    """The table of a command's own options, and lines that name those described before."""
    own: list[str] = []
    elsewhere: dict[str, list[str]] = {}
    for parameter in command.params:
        if of_heads(name, parameter) or parameter.name == "help_all":
            continue
        line = row(parameter)
        first = described.setdefault(line, name)
        if first == name or parameter.required:
            own.append(line)
        else:
            elsewhere.setdefault(first, []).append(line.split(" | ")[0].removeprefix("| "))
    lines = ["| option | meaning | default |", "| --- | --- | --- |", *own] if own else []
    if elsewhere:
        of = [
            f"{', '.join(names)} ([{first}]({anchor(first)}))" for first, names in elsewhere.items()
        ]
        lines += [""] * bool(own) + ["Also " + "; ".join(of) + "."]
    if any(of_heads(name, parameter) for parameter in command.params):
        lines += ["", "The options of the head as well: see `afltool head` below."]
    return lines


def anchor(name: str) -> str:
    """The address of a command's part of the page."""
    return "#" + name.replace(" ", "-")


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


def changes() -> str:
    """CHANGELOG.md with the table of old commands and options."""
    before, _, rest = CHANGES.read_text().partition(BEGIN)
    lines = [f"| `{old}` | {new} |" for old, new in sorted(RENAMED.items())]
    table = "\n".join(["| old | now |", "| --- | --- |", *lines])
    return f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
    CHANGES.write_text(changes())
    print(PAGE)
