"""What commands do beside their stage: print what it found, write several files, or look only."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UsageError
from ..options.common import STDOUT
from ..options.evaluation import Counts, Evaluate, EvaluateOrCount, Predict
from ..options.features import ExtractNodes
from ..options.partition import Partition, PartitionOrLook
from ._console import print_json, say
from .commands import show


def extract(o: ExtractNodes, as_json: bool) -> None:
    """Extract features, or print what --node can name."""
    if not o.list_nodes:
        from ..stages.extract import extract as stage

        show(stage(o), as_json)
        return
    from ..show.tables import print_nodes
    from ..sources.extraction.request import Asked

    rows = Asked.of(o).nodes()
    print_json(rows) if as_json else print_nodes(rows)


def partition(o: PartitionOrLook, as_json: bool) -> None:
    """Make a partition, or look at one that is there."""
    from ..files.hdf5 import read_header
    from ..show.tables import print_facts
    from ..stages import partition as stage

    describe = o.describe
    if o.out is not None:
        path = stage.partition(o.to(Partition))
    else:
        if read_header(o.features)["kind"] != "partition":
            raise UsageError("-o FILE is needed: where the partition goes")
        path, describe = o.features, describe or o.export is None
        if o.export is not None:
            stage.export(path, o.export, overwrite=o.overwrite)
    if not describe:
        show(path, as_json)
        return
    facts = stage.describe(path)
    print_json(facts) if as_json else print_facts(facts)


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

    given = [path for path in (o.out, o.confusion, o.rounds) if path is not None]
    streams = given.count(STDOUT)
    if streams + as_json > 1:
        raise UsageError("one thing goes to stdout: --json, or one output that is -")
    for path in given:
        if path != STDOUT:
            check_output(path)
    return streams > 0


def predict(o: Predict, as_json: bool) -> None:
    """Predict; the table itself is on stdout, unless it goes into a file."""
    from ..stages.predict import predict as stage

    answers = stage(replace(o, as_json=as_json))
    if o.out != STDOUT:
        print_json(answers) if as_json else say(o.out)
