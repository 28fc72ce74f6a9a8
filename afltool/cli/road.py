"""Commands from features to a head and what it is used for, and `run` for all stages."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..heads import OPTIONS
from ..options import flag, made
from ..options.csv_files import check_formulas, is_csv
from ..options.features import SpaceOptions
from ..options.files import WRITES
from ..options.solving import (
    CalibrateOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
    SolveOptions,
)
from ..options.statistics import AggregateOptions, CountOptions, LocalStatsOptions, RoundOptions
from ..options.used_with import ABSENT, GIVEN, OnlyWith
from ._later import made_later
from ._options import add, of_heads, of_run, parameters, used_with
from ._streams import say
from ._types import (
    HeadSpec,
    Json,
    Out,
    Overwrite,
    Track,
    passing,
    print_json,
    show,
    show_folder,
)


def add_to(app: typer.Typer) -> None:
    passing(
        app,
        "local-stats",
        {"features": "a feature file"},
        "Compute the statistics of each client: one file per client, or their sum.",
        LocalStatsOptions,
        more={"head": HeadSpec},
        out=Annotated[Path, typer.Option("--out", "-o", help="folder; with --sum a file")],
        head_options=of_heads,
    )
    add(app, "aggregate", aggregate)
    add(app, "solve", solve, head_options=partial(of_heads, at_solve=True))
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
    add(app, "run", run, options=of_run)
    add(app, "predict", predict)
    about = "Write a head file: a head and its options, on which a federation agrees first."
    heads = typer.Typer(cls=made_later(_heads), no_args_is_help=True, help=about)
    app.add_typer(heads, name="head")


def _heads() -> typer.Typer:
    """`afltool head NAME`: a command for each head, with its options."""
    heads = typer.Typer()
    for name, cls in OPTIONS.items():
        own = partial(parameters, cls, "Head")
        how: dict[str, Any] = {"stage": "head:head", "first": (name,), "head_options": own}
        passing(heads, name, {}, cls.__doc__, SpaceOptions, **how)
    passing(
        heads,
        "evaluation",
        {"heads": (list[Path], "solved heads, of one feature space and list of classes")},
        "Write a round of evaluation, on which sites agree before they count (evaluate --counts).",
        RoundOptions,
        stage="counts:evaluation",
    )
    return heads


def aggregate(
    files: Annotated[list[Path], typer.Argument(help="files, folders, quoted globs, - for stdin")],
    out: Out,
    options: AggregateOptions,
    check: Annotated[
        bool,
        typer.Option("--check", help="compare: the sum that is there must be that of the files"),
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Add statistics up, in any order and grouping; totals can be added, too."""
    from ..stages.aggregate import aggregate as stage

    show(stage(files, out, options, overwrite=overwrite, check=check), as_json)


def solve(
    total: Annotated[Path, typer.Argument(help="a total (or any statistics)")],
    out: Out,
    options: SolveOptions,
    head_options: dict[str, Any],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Solve the head that the total was gathered for."""
    from ..stages.solve import solve as stage

    path = stage(total, out, options, head_options=head_options, overwrite=overwrite)
    if not as_json:
        from ..show.solution import say_solution

        say_solution(path)
    show(path, as_json)


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
    check_formulas(o.formulas, confusion is not None or is_csv(rounds) or is_csv(o.errors))
    with together():
        found = stage(head, features, o, overwrite=overwrite)
        if rounds is not None:
            write_records(found["rounds"], rounds, overwrite, o.formulas)
        if out is not None:
            write_json(found, out, overwrite)
        if confusion is not None:
            write_confusion(found, confusion, overwrite, o.formulas)
    if as_json:
        print_json(found)
    elif not streamed:
        print_metrics(found)


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
    out: Annotated[Path, typer.Option("--out", "-o", help="a .onnx, .pt2 or .safetensors file")],
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
    from ..values.digest import file_sha256

    print_json({"path": str(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)})


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="run folder")],
    options: dict[str, Any],
    config: Annotated[
        Path | None, typer.Argument(help="TOML with these options; options given here win")
    ] = None,
    track: Track = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Carry out every stage on this machine; keep finished and valid files."""
    from ..plans.config import RunConfig, read_config
    from ..plans.here import run as stage
    from ..plans.layout import RunFolder
    from ..plans.tracking import tracked
    from ..show.tables import print_summary

    given = {**({} if config is None else read_config(config)), **options}
    with tracked(track):
        folder = stage(RunConfig(**given), out, overwrite=overwrite)
    show_folder(folder, RunFolder.SUMMARY, as_json, print_summary)


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

    found = stage(head, named, out, options, overwrite=overwrite, as_json=as_json)
    if out != STDOUT:
        print_json(found) if as_json else say(out)
