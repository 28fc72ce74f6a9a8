"""Stage `calibrate`: a solved head and counts of rows that it scored → its probabilities."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.counts import Counts, HeadCounts, read_counts
from ..files.hdf5 import recipe
from ..files.heads import load_solved_head, save_head
from ..files.recipes import Recipe
from ..heads.calibration import CalibratedHead
from ..options.evaluation import Calibrate
from ..progress import log
from ..values.statistics import Context
from .runner import Files, Job, StageFunction, Write


@StageFunction
def calibrate(o: Calibrate, files: Files) -> Job:
    """Write a head whose scores are log-probabilities, by a total of ``counts`` of its rows.

    ``counts``: what `counts` wrote at sites, added up; best of rows that the head was not solved
    from. The map that ``method`` names is fitted to bins of scores, whose middles stand for the
    scores. The counts stay in the head, for `predict` with ``coverage``.
    """
    solved, header = load_solved_head(o.head)
    if isinstance(solved, CalibratedHead):
        raise UsageError(f"{o.head} is calibrated already: give the head that it was made of")
    read = read_counts(o.counts)
    counted = _of_head(o, header["digest"], read)
    if list(read.classes) != header["classes"]:
        raise MismatchError(f"{o.counts} counts other classes than those of the head {o.head}")
    if not read.rows:
        raise InvalidDataError(f"{o.counts} counts 0 rows: there is nothing to calibrate by")
    _check_ends(o.counts, counted)

    def compute() -> Write:
        made = CalibratedHead.of(solved, read.classes, counted.scores, counted.edges, o.method)
        report = {**header["report"], "calibrated_by": o.method, "calibrated_on": read.rows}
        space = Context(header["space"], tuple(header["classes"]))

        def write(path: Path, how: Recipe) -> None:
            save_head(path, made, how, space, report)
            log.info("calibrate: %s by %d rows", o.method, read.rows)
            if o.method != "temperature":
                _say_changes(counted, read, o)

        return write

    inputs = {"head": header["digest"], "counts": read.statistics.digest()}
    return Job.one(o.out, recipe("calibrate", o.stored(), inputs), compute)


def _of_head(o: Calibrate, digest: str, counts: Counts) -> HeadCounts:
    """What is counted of the head; `MismatchError` where nothing is."""
    by_digest = {one.digest: one for one in counts.heads}
    if digest in by_digest:
        return by_digest[digest]
    others = ", ".join(f"{one.name} {one.digest[:12]}" for one in counts.heads)
    raise MismatchError(
        f"{o.counts} counts rows of other heads ({others}) than {o.head} ({digest[:12]}): evaluate "
        "that one with --counts"
    )


def _say_changes(counted: HeadCounts, read: Counts, o: Calibrate) -> None:
    """Warn that a map of each class can change what is predicted."""
    rows = counted.scores[:, 1].sum(axis=1)
    fewest = rows.min(), read.classes[rows.argmin()]
    log.warning(
        "calibrate: predicted classes can change: %s fits a map to each class (the fewest rows, "
        "%d, are of %s). The head predicted %d of %d counted rows right. Measure what changes: "
        "afltool evaluate %s TEST.h5 --against %s",
        *(o.method, *fewest, counted.right, read.rows, o.out, o.head),
    )


def _check_ends(counts: Path, counted: HeadCounts) -> None:
    """Refuse scores of which most lie in the bins at the ends: a map of these would tell nothing.

    Probabilities may rightly be near 0 and 1.
    """
    if not counted.probabilities and counted.at_ends > 0.5:
        raise InvalidDataError(
            f"{counted.at_ends:.0%} of the rows of {counts} have the score of their class in a bin "
            f"at an end of {counted.edges[0]:g} to {counted.edges[-1]:g}, or beyond: no map can be "
            "fitted to it. Count again with wider bins (--bins LO:HI:COUNT)"
        )
