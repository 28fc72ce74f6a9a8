"""Commands that put a solved head to use: predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.predict import PredictOptions
from ._console import command
from ._options import parameters, with_options
from ._streams import say
from ._types import Json, Overwrite, print_json


def add_to(app: typer.Typer) -> None:
    options = parameters(PredictOptions)
    app.command("predict")(command(with_options(predict, options=options)))


def predict(
    head: Annotated[Path, typer.Argument(help="a solved head")],
    named: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="images, folders of images, tables with a column of paths, feature files; - for "
            "a path a line on stdin",
        ),
    ],
    options: dict[str, Any],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="a .csv, .jsonl or .parquet file; - is stdout")
    ] = Path("-"),
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Predict the class of images, or of rows of features, with a head; no labels are needed.

    The columns are path (of a feature file the row id), predicted, score and error. Scores are
    probabilities if the head defines them (softmax, network, discriminant by a Gaussian rule).
    Otherwise they are least-squares estimates of the labels 0 and 1, and only their order counts.
    Without -o, --json prints JSON Lines.
    """
    from ..stages.predict import predict as stage
    from ..store.outputs import STDOUT

    found = stage(head, named, out, overwrite=overwrite, as_json=as_json, **options)
    if out != STDOUT:
        print_json(found) if as_json else say(out)
