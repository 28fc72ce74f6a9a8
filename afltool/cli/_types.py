"""Parameters that commands share besides the options of stages: outputs and their display."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..heads import OPTIONS
from ._console import is_quiet
from ._options import starting_with
from ._streams import print_json as print_json
from ._streams import say as say

Out = Annotated[Path, typer.Option("--out", "-o", help="where the result goes")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace an existing output")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a path or a table")]
FieldName = Annotated[
    str | None,
    typer.Option("--field", help="print only this field, such as digest or report.ridge"),
]
HeadSpec = Annotated[
    str,
    typer.Option(
        "--head",
        help="a head file, or a head's name with its options",
        autocompletion=starting_with(OPTIONS),
    ),
]


def show_all(paths: Sequence[Path], as_json: bool) -> None:
    """The results of a stage that made several files: a path a line, or a list as JSON."""
    if not as_json:
        for path in paths:
            say(path)
        return
    from ..stages.inspect import info

    print_json([info(path) for path in paths])


def show(path: Path, as_json: bool) -> None:
    """The result of a stage that made a file: its path, or its content as JSON."""
    if not as_json:
        say(path)
        return
    if path.is_dir():
        show_all(sorted(path.glob("*.h5")), as_json)
        return
    from ..stages.inspect import info

    print_json(info(path))


def show_folder(
    folder: Path, summary: str, as_json: bool, print_summary: Callable[[dict[str, Any]], None]
) -> None:
    """The result of a command that fills a folder, and on stderr what its summary says."""
    found = json.loads((folder / summary).read_text())
    if as_json:
        print_json({"path": str(folder), **found})
        return
    if not is_quiet():
        print_summary(found)
    say(folder)


def print_field(found: dict[str, Any], name: str, source: Path) -> None:
    """One entry of a command's result for a script: a text without quotes, or JSON."""
    from ..stages.inspect import field

    value = field(found, name, source)
    say(value) if isinstance(value, str) else print_json(value, indent=None)
