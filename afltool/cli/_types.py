"""What commands share besides the options of stages: outputs, their display, passing on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from ..doors import located
from ..heads import OPTIONS
from ..options import Options
from ..options.files import Files
from ..options.used_with import ABSENT, OnlyWith
from ._console import is_quiet
from ._help import RARE
from ._options import KEYWORD_ONLY, add, starting_with
from ._streams import print_json as print_json
from ._streams import say as say

Out = Annotated[Path, typer.Option("--out", "-o", help="where the result goes")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace an existing output")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="folder for the result")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a path or a table")]
JsonOfAll = Annotated[Json, OnlyWith({"field": ABSENT})]
FieldName = Annotated[
    str | None,
    typer.Option("--field", help="print only this field, such as digest or report.ridge"),
]
Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        help="also log it to MLflow: mlflow:URI, such as mlflow:sqlite:///runs.db",
        rich_help_panel=f"Run{RARE}",
    ),
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


def show(made: Path | Sequence[Path], as_json: bool) -> None:
    """The result of a stage, a file or several: a path a line, or what is in them as JSON."""
    if not as_json:
        for path in [made] if isinstance(made, Path) else made:
            say(path)
        return
    from ..stages.inspect import info

    if isinstance(made, Path) and not made.is_dir():
        print_json(info(made))
    else:
        paths = sorted(made.glob("*.h5")) if isinstance(made, Path) else made
        print_json([info(path) for path in paths])


def passing(
    app: typer.Typer,
    name: str,
    files: Mapping[str, Any],
    says: str | None,
    options: type[Options] = Options,
    *,
    stage: str = "",
    more: Mapping[str, Any] | None = None,
    first: tuple[str, ...] = (),
    out: Any = Out,
    head_options: Any = None,
    overwrites: bool = True,
    writes_json: bool = True,
) -> None:
    """Add a command that passes its files and options on to a stage, and shows what this makes.

    ``files``: what each argument is, a path, or a type and what it is; ``stage``: MODULE:FUNCTION
    below `afltool.stages`, unless both have the command's name; ``first``: what the stage takes
    before the files; ``more``, ``out``: how other files and --out are declared; ``head_options``: a
    group of options.
    """

    declared = {k: _argument(v) for k, v in files.items()} | {**(more or {}), "out": out}
    declared = {k: kind for k, kind in declared.items() if kind}
    asked = {**declared, "options": options, "head_options": head_options and Any}
    asked |= {"overwrite": overwrites and Overwrite, "as_json": writes_json and Json}

    def run(as_json: bool = False, **given: Any) -> None:
        paths = [given.pop(k) for k in declared]
        place = stage or f"{name}:{name}".replace("-", "_")
        show(located(f"..stages.{place}", __package__)(*first, *paths, **given), as_json)

    function: Any = run  # to mypy a function has no signature to be set
    function.__name__, function.__doc__ = name, says
    function.__signature__ = Signature(
        [_parameter(k, kind) for k, kind in asked.items() if kind and kind is not Options]
    )
    add(app, name, function, **({"head_options": head_options} if head_options else {}))


def _parameter(name: str, kind: Any) -> Parameter:
    default = False if kind in (Overwrite, Json) else Parameter.empty
    return Parameter(name, KEYWORD_ONLY, default=default, annotation=kind)


def _argument(kind: Any) -> Any:
    kind, about = kind if isinstance(kind, tuple) else (Path, kind)
    return Annotated[kind, typer.Argument(help=about)]


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


def show_found(
    found: dict[str, Any],
    field_name: str | None,
    as_json: bool,
    source: Path,
    print_it: Callable[[dict[str, Any]], None],
) -> None:
    """What a command found: one field for a script (a text without quotes), JSON, or a table."""
    if field_name is None:
        print_json(found) if as_json else print_it(found)
        return
    from ..stages.inspect import field

    value = field(found, field_name, source)
    say(value) if isinstance(value, str) else print_json(value, indent=None)
