"""Commands of the road from features to a checked head, and `run` for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..heads import OPTIONS
from ..stages.run_config import RunConfig
from ._console import command
from ._head_options import parameters_of, with_head_options
from ._types import HeadSpec, Json, Out, Overwrite, Threads, print_json, show

Files = Annotated[list[Path], typer.Argument(help="Files, folders, quoted globs, - for stdin.")]
Repeated = list[Path] | None


def add_to(app: typer.Typer) -> None:
    heads = typer.Typer(
        no_args_is_help=True, help="Write what a federation agrees on at the start."
    )
    for name in OPTIONS:
        heads.command(name)(command(with_head_options(_head_command(name), [name])))
    app.add_typer(heads, name="head")
    app.command("local-stats")(command(with_head_options(local_stats, OPTIONS)))
    app.command("aggregate")(command(aggregate))
    app.command("solve")(command(with_head_options(solve, OPTIONS, at_solve=True)))
    app.command("evaluate")(command(evaluate))
    app.command("run")(
        command(with_head_options(run, OPTIONS, {"seed"}, parameters_of(RunConfig, "Run")))
    )


def _head_command(name: str) -> Any:
    def head(
        out: Out, head_options: dict[str, Any], overwrite: Overwrite = False, as_json: Json = False
    ) -> None:
        from ..stages.head import head as stage

        show(stage(name, out, options=head_options, overwrite=overwrite), as_json)

    head.__doc__ = OPTIONS[name].__doc__
    return head


def local_stats(
    features: Annotated[Path, typer.Argument(help="A feature file.")],
    head: HeadSpec,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder; with --sum a file.")],
    head_options: dict[str, Any],
    partition: Annotated[
        Path | None, typer.Option("--partition", help="Who owns which row (simulated clients).")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="A real silo: the whole file is this client.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", help="Some clients: 0-9 or 3,7-8; I/N: part I (from 0) of N."),
    ] = None,
    participation: Annotated[
        float, typer.Option("--participation", help="Share of the clients that is drawn.")
    ] = 1.0,
    participation_seed: Annotated[
        int, typer.Option("--participation-seed", help="Seed of that draw (and a head's layer).")
    ] = 0,
    sum_: Annotated[
        bool, typer.Option("--sum", help="One file: the sum of these clients.")
    ] = False,
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", help="With --sum: where the held-out clients' sum goes."),
    ] = None,
    min_rows: Annotated[
        int, typer.Option("--min-rows", help="Refuse statistics of fewer rows than this.")
    ] = 0,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder that saves later rounds the work of earlier ones."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Each client's statistics, one file a client (or their sum)."""
    from ..stages.local_stats import local_stats as stage

    path = stage(
        features,
        head,
        out,
        partition=partition,
        client=client,
        only=only,
        participation=participation,
        participation_seed=participation_seed,
        sum=sum_,
        held_out=held_out,
        min_rows=min_rows,
        head_options=head_options,
        cache=cache,
        overwrite=overwrite,
    )
    show(path, as_json)


def aggregate(
    files: Files,
    out: Out,
    add: Annotated[Repeated, typer.Option("--add", help="Late clients; repeat it.")] = None,
    subtract: Annotated[
        Repeated, typer.Option("--subtract", help="Clients that leave; repeat it.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="Where the held-out clients' sum goes.")
    ] = None,
    law: Annotated[
        str, typer.Option("--law", help="sum, or pairwise (AFL's Theorem 1; slow, for checking).")
    ] = "sum",
    complete: Annotated[
        bool, typer.Option("--complete", help="Refuse a sum that lacks clients of the partition.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Add statistics up, in any order and grouping; totals can be added again."""
    from ..stages.aggregate import aggregate as stage

    path = stage(
        files,
        out,
        add=add or [],
        subtract=subtract or [],
        held_out=held_out,
        law=law,
        complete=complete,
        overwrite=overwrite,
    )
    show(path, as_json)


def solve(
    total: Annotated[Path, typer.Argument(help="A total (or any statistics).")],
    out: Out,
    head_options: dict[str, Any],
    ridge_path: Annotated[
        str | None, typer.Option("--ridge-path", help="LO:HI:COUNT: choose λ from a whole path.")
    ] = None,
    validate: Annotated[
        Path | None,
        typer.Option("--validate", help="Sum over held-out clients, to choose λ (and layers) by."),
    ] = None,
    head: Annotated[
        Path | None, typer.Option("--head", help="The head the total was gathered for, if asked.")
    ] = None,
    threads: Threads = 1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Solve the head that the total was gathered for."""
    from ..errors import UsageError
    from ..stages.solve import solve as stage

    if ridge_path is not None and "ridge" in head_options:
        raise UsageError("give --ridge or --ridge-path, not both")
    if ridge_path is not None:
        head_options = {**head_options, "ridge": ridge_path}
    path = stage(
        total,
        out,
        head=head,
        validate=validate,
        options=head_options,
        threads=threads,
        overwrite=overwrite,
    )
    if not as_json:
        from ..report.tables import say_solution

        say_solution(path)
    show(path, as_json)


def evaluate(
    head: Annotated[Path, typer.Argument(help="A solved head.")],
    features: Annotated[Path, typer.Argument(help="Features with labels, such as the test split.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the JSON to this file.")
    ] = None,
    confusion: Annotated[
        Path | None, typer.Option("--confusion", help="Also write the confusion matrix as CSV.")
    ] = None,
    each_round: Annotated[
        bool, typer.Option("--each-round", help="Also after every round that the file holds.")
    ] = False,
    rounds: Annotated[
        Path | None,
        typer.Option("--rounds", help="Also write the table of rounds, .csv or .parquet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Top-1 and top-5 accuracy, per class, and the confusion matrix."""
    from ..report.rounds import check_table, write_rounds
    from ..report.tables import print_metrics, write_confusion, write_json
    from ..stages.evaluate import evaluate as stage

    if rounds is not None:
        check_table(rounds)
    found = stage(head, features, each_round=each_round or rounds is not None)
    if rounds is not None:
        write_rounds(found["rounds"], rounds)
    if out is not None:
        write_json(found, out)
    if confusion is not None:
        write_confusion(found, confusion)
    if as_json:
        print_json(found)
    else:
        print_metrics(found)


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder.")],
    head_options: dict[str, Any],
    config: Annotated[
        Path | None, typer.Argument(help="TOML with these options; options given here win.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """All stages on one machine, in a folder that shows the road; what is done is kept."""
    import json

    from ..report.tables import print_summary
    from ..stages.pipeline import run as stage
    from ..stages.run_config import make_config, read_config

    given = {**({} if config is None else read_config(config)), **head_options}
    folder = stage(make_config(given), out, overwrite=overwrite)
    summary = json.loads((folder / "summary.json").read_text())
    if as_json:
        print_json({"path": str(folder), **summary})
    else:
        print_summary(summary)
        typer.echo(str(folder))
