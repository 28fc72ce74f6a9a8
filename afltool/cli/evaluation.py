"""What `evaluate`, `export` and `predict` print."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..options.common import STDOUT
from ..options.evaluation import Counts, Evaluate, EvaluateOrCount, Export, Predict
from ._console import print_json, say
from .commands import show


def evaluate(o: EvaluateOrCount, as_json: bool) -> None:
    """Print the figures of a head, and write them where they are wanted; or write counts."""
    from ..files.atomic import together
    from ..files.tables import check_table, write_confusion, write_json, write_records
    from ..show.tables import print_metrics
    from ..stages.evaluate import evaluate as stage

    if o.counts:
        from ..stages.counts import counts

        show(counts(o.to(Counts)), as_json)
        return
    if o.rounds is not None:
        check_table(o.rounds)
    streamed = _check_outputs(o, as_json)
    each_round = o.each_round or o.rounds is not None
    with together():
        report = stage(o.to(Evaluate, each_round=each_round))
        if o.rounds is not None:
            write_records(report["rounds"], o.rounds, o.overwrite)
        if o.out is not None:
            write_json(report, o.out, o.overwrite)
        if o.confusion is not None:
            write_confusion(report, o.confusion, o.overwrite)
    if as_json:
        print_json(report)
    elif not streamed:
        print_metrics(report)


def _check_outputs(o: EvaluateOrCount, as_json: bool) -> bool:
    """Refuse outputs that cannot be written, before the work; returns whether one is stdout."""
    from ..files.outputs import check_output

    kinds: dict[str | None, Path | None] = {"JSON": o.out, "text": o.confusion, None: o.rounds}
    given = [path for path in kinds.values() if path is not None]
    streams = given.count(STDOUT)
    if streams + as_json > 1:
        raise UsageError("one thing goes to stdout: --json, or one output that is -")
    for kind, path in kinds.items():
        if path is not None and path != STDOUT:
            check_output(path, kind)
    return streams > 0


def export(o: Export, as_json: bool) -> None:
    """Write a head as one file; with --json say what it is."""
    from ..stages.export import export as stage
    from ..values.arrays import file_sha256

    path = stage(o)
    if as_json:
        print_json({"path": str(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)})
    else:
        say(path)


def predict(o: Predict, as_json: bool) -> None:
    """Predict; the table itself is on stdout, unless it goes into a file."""
    from dataclasses import replace

    from ..stages.predict import predict as stage

    answers = stage(replace(o, as_json=as_json))
    if o.out != STDOUT:
        print_json(answers) if as_json else say(o.out)
