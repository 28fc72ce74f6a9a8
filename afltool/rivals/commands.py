"""The door of the rivals: the command `baseline`; each method has options of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cli._options import Json, Overwrite, Track, add, parameters, show_folder, tracking
from ..cli.app import made_later
from ..values.text import byte_text
from . import METHODS, method_class
from .settings import BaselineFolder, BaselineOptions


def _methods() -> typer.Typer:
    group = typer.Typer()
    for name in METHODS:
        settings = partial(parameters, method_class(name).settings_class, "Method")
        add(group, name, _baseline_command(name), settings=settings)
    return group


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(cls=made_later(_methods), no_args_is_help=True)

    @group.callback()
    def baseline() -> None:
        """Train a rival by gradients on cached features, simulated on this machine."""

    app.add_typer(group, name="baseline")


def _baseline_command(name: str) -> Any:
    def baseline(
        features: Annotated[Path, typer.Argument(help="features of all clients")],
        out: Annotated[Path, typer.Option("--out", "-o", help="run folder")],
        options: BaselineOptions,
        settings: dict[str, Any],
        track: Track = None,
        overwrite: Overwrite = False,
        as_json: Json = False,
    ) -> None:
        from .stage import baseline as stage

        with tracking(track):
            folder = stage(name, features, out, options, settings=settings, overwrite=overwrite)
        show_folder(folder, BaselineFolder.SUMMARY, as_json, _print)

    baseline.__doc__ = _says(name)
    return baseline


def _print(summary: dict[str, Any]) -> None:
    """The three accuracies of a baseline and what they cost, on stderr."""
    from ..show.tables import tell_facts

    facts = []
    for name, one in summary["accuracies"].items():
        spread = f", spread {one['top1_spread']:.2%}" if "top1_spread" in one else ""
        largest = f", largest {one['top1_max']:.2%}" if "top1_max" in one else ""
        note = f" ({one['note']})" if "note" in one else ""
        text = f"{one['top1']:.2%}{largest}{spread} in round {one['round']}{note}"
        facts.append((name.replace("_", " "), text))
    up, down = (byte_text(summary[f"{way}_bytes"]) for way in ("upload", "download"))
    facts.append(("a client sends", f"{up} and gets {down} in all rounds"))
    seconds = f"clients {summary['client_seconds']:.1f}, server {summary['server_seconds']:.1f}"
    facts.append(("processor seconds", seconds))
    tell_facts(facts, summary["rounds"])


def _says(name: str) -> str:
    """The first paragraph of a method's docstring."""
    import inspect

    return (inspect.getdoc(method_class(name)) or "").split("\n\n")[0]
