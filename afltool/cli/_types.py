"""What commands share besides the options of stages: outputs, their display, passing on."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ..heads import OPTIONS
from ..options import Options
from ..options.files import Files
from ._console import is_quiet
from ._options import KEYWORD_ONLY, add, starting_with
from ._streams import print_json as print_json
from ._streams import say as say

Out = Annotated[Path, typer.Option("--out", "-o", help="where the result goes")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="folder for the result")]
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
    Files(),
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


def passing(
    app: typer.Typer,
    name: str,
    stage: str,
    given: tuple[str, Any, str],
    says: str,
    options: type[Options] = Options,
    out: Any = Out,
    has_json: bool = True,
) -> None:
    """Add a command that passes its argument, --out and options on, and shows what this makes.

    ``stage``: MODULE:FUNCTION below `afltool.stages`; ``given``: name, type and help of the
    argument; ``out``: how --out is declared; ``has_json``: whether there is a --json.
    """

    def run(files: dict[str, Any], options: Options, overwrite: bool) -> Any:
        module, function = stage.split(":")
        made = getattr(import_module(f"..stages.{module}", __package__), function)
        asked = {"options": options} if fields(options) else {}
        return made(*files.values(), **asked, overwrite=overwrite)

    def with_json(
        files: dict[str, Any],
        options: Options,
        overwrite: Overwrite = False,
        as_json: Json = False,
    ) -> None:
        show(run(files, options, overwrite), as_json)

    def without(files: dict[str, Any], options: Options, overwrite: Overwrite = False) -> None:
        found = run(files, options, overwrite)
        for path in found if isinstance(found, list) else [found]:
            say(path)

    argument, kind, about = given
    described = {argument: Annotated[kind, typer.Argument(help=about)], "out": out}
    files = [inspect.Parameter(k, KEYWORD_ONLY, annotation=v) for k, v in described.items()]
    function: Any = with_json if has_json else without
    function.__doc__, function.__annotations__["options"] = says, options
    add(app, name, function, files=files)


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
