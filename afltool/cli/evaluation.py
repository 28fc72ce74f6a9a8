"""Commands for what a solved head is used for: evaluate, calibrate, export, predict."""

from __future__ import annotations

from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..options import ABSENT, GIVEN, OnlyWith, flag, made
from ..options.evaluation import (
    CalibrateOptions,
    CountOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from ..options.shared import WRITES
from ._console import say
from ._options import Json, Overwrite, add, parameters, passing, print_json, show, used_with


def add_to(app: typer.Typer) -> None:
    passing(
        app,
        "calibrate",
        {"head": "a solved head", "counts": "a total of what evaluate --counts wrote"},
        "Make probabilities of a head's scores, by counts of rows that it was not solved from.\n\n"
        "predict, export and evaluate take the new head; predict --coverage needs it.",
        CalibrateOptions,
    )
    add(app, "evaluate", evaluate, options=EvaluateOptions, counting=_counting)
    add(app, "export", export)
    add(app, "predict", predict)


#: Options of counting that no solved head has a use for; those of `evaluate` it has anyhow.
_NOT_OF_COUNTS = ("participation", "participation_kind", "participation_seed", "cache")


def _counting() -> list[Parameter]:
    skip = {*_NOT_OF_COUNTS, *(f.name for f in fields(EvaluateOptions))}
    return used_with(parameters(CountOptions, "Counts", skip=skip, rare=True), {"counts": GIVEN})


def evaluate(
    head: Annotated[Path, typer.Argument(help="a solved head")],
    features: Annotated[Path, typer.Argument(help="features with labels, such as the test split")],
    options: dict[str, Any],
    counting: dict[str, Any],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="also write the JSON to this file; - is stdout; with --counts a folder",
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="write counts, which sites add up with aggregate, and no figures"
        ),
    ] = False,
    confusion: Annotated[
        Path | None,
        typer.Option("--confusion", help="also write the confusion matrix as CSV"),
        WRITES,
        OnlyWith({"counts": ABSENT}),
    ] = None,
    rounds: Annotated[
        Path | None,
        typer.Option("--rounds", help="also write the table of rounds, .csv or .parquet"),
        WRITES,
        OnlyWith({"counts": ABSENT}),
    ] = None,
    overwrite: Annotated[Overwrite, OnlyWith({"out|confusion|rounds|errors": GIVEN})] = False,
    as_json: Json = False,
) -> None:
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""
    from ..files.atomic import together
    from ..files.tables import check_table, write_confusion, write_json, write_records
    from ..show.tables import print_metrics
    from ..stages.evaluate import evaluate as stage

    if counts:
        _count(head, features, out, {**options, **counting}, overwrite, as_json)
        return
    if rounds is not None:
        check_table(rounds)
        options = {**options, "each_round": True}
    o = made(EvaluateOptions, options)
    streamed = _check_outputs(out, confusion, rounds, as_json)
    with together():
        report = stage(head, features, o, overwrite=overwrite)
        if rounds is not None:
            write_records(report["rounds"], rounds, overwrite)
        if out is not None:
            write_json(report, out, overwrite)
        if confusion is not None:
            write_confusion(report, confusion, overwrite)
    if as_json:
        print_json(report)
    elif not streamed:
        print_metrics(report)


def _count(
    head: Path,
    features: Path,
    out: Path | None,
    given: dict[str, Any],
    overwrite: bool,
    as_json: bool,
) -> None:
    """`evaluate --counts`."""
    from ..stages.counts import counts as stage

    if out is None:
        raise UsageError("--counts is used only with --out: give a folder, or with --sum a file")
    known = {f.name for f in fields(CountOptions)}
    if others := sorted(given.keys() - known):
        raise UsageError(
            f"{flag(others[0])} is not used with --counts: the total of the counts has the figures"
        )
    options = made(CountOptions, given)
    show(stage(head, features, out, options, overwrite=overwrite), as_json)


def _check_outputs(
    out: Path | None, confusion: Path | None, rounds: Path | None, as_json: bool
) -> bool:
    """Refuse outputs that cannot be written, before the work; returns whether one is stdout."""
    from ..files.outputs import STDOUT, check_output

    kinds = {"JSON": out, "text": confusion, None: rounds}
    given = [path for path in kinds.values() if path is not None]
    streams = given.count(STDOUT)
    if streams + as_json > 1:
        raise UsageError("one thing goes to stdout: --json, or one output that is -")
    for kind, path in kinds.items():
        if path not in (None, STDOUT):
            check_output(path, kind)
    return streams > 0


def export(
    head: Annotated[Path, typer.Argument(help="a solved head")],
    out: Annotated[Path, typer.Option("--out", "-o", help="a .onnx or .pt2 file")],
    options: ExportOptions,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a solved head as one file that runs without afltool, and a model card.

    The file is run on a sample before it gets its name: its scores must be afltool's.
    """
    from ..stages.export import export as stage

    path = stage(head, out, options, overwrite=overwrite)
    if not as_json:
        say(path)
        return
    from ..values.arrays import file_sha256

    print_json({"path": str(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)})


def predict(
    head: Annotated[Path, typer.Argument(help="a solved head")],
    named: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="images, folders of images, tables with a column of paths, feature files; - for "
            "one path per line on stdin",
        ),
    ],
    options: PredictOptions,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="a .csv, .jsonl or .parquet file; - is stdout")
    ] = Path("-"),
    overwrite: Annotated[Overwrite, OnlyWith({"out": GIVEN})] = False,
    as_json: Json = False,
) -> None:
    """Predict the class of images, or of rows of features, with a head; no labels are needed.

    The columns are path (of a feature file the row id), predicted, score and error. Scores are
    probabilities if the head defines them (softmax, network, discriminant by a Gaussian rule).
    Otherwise they are least-squares estimates of the labels 0 and 1, and only their order counts.
    Without -o, --json prints JSON Lines.
    """
    from ..files.outputs import STDOUT
    from ..stages.predict import predict as stage

    answers = stage(head, named, out, options, overwrite=overwrite, as_json=as_json)
    if out != STDOUT:
        print_json(answers) if as_json else say(out)
