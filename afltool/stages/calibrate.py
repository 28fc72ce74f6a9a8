"""Stage `calibrate`: a solved head and counts of rows that it scored → its probabilities."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.counts import Counts, HeadCounts, read_counts
from ..files.hdf5 import recipe
from ..files.heads import load_solved_head, save_head
from ..heads.calibration import CalibratedHead
from ..options.evaluation import Calibrate
from ..progress import log
from ..values.statistics import Context
from .runner import Files, Job, Recipe, Write, carry_out


def calibrate(o: Calibrate) -> Path:
    """Write a head whose scores are log-probabilities, by a total of ``counts`` of its rows.

    ``counts``: what `counts` wrote at sites, added up; best of rows that the head was not solved
    from. The map that ``method`` names is fitted to bins of scores, whose middles stand for the
    scores. The counts stay in the head, for `predict` with ``coverage``.
    """
    return carry_out(job, o)[-1].path


def job(o: Calibrate, files: Files) -> Job:
    head, counts = o.head, o.counts
    solved, header = load_solved_head(head)
    if isinstance(solved, CalibratedHead):
        raise UsageError(f"{head} is calibrated already: give the head that it was made of")
    read = read_counts(counts)
    of_head = _of_head(head, header["digest"], counts, read.heads)
    if list(read.classes) != header["classes"]:
        raise MismatchError(f"{counts} counts other classes than those of the head {head}")
    if not read.rows:
        raise InvalidDataError(f"{counts} counts 0 rows: there is nothing to calibrate by")
    _check_ends(counts, of_head)
    inputs = {"head": header["digest"], "counts": read.statistics.digest()}
    made_by = recipe("calibrate", o.stored(), inputs)

    def compute() -> Write:
        made = CalibratedHead.of(solved, read.classes, of_head.scores, of_head.edges, o.method)
        report = {**header["report"], "calibrated_by": o.method, "calibrated_on": read.rows}
        space = Context(header["space"], tuple(header["classes"]))

        def write(path: Path, how: Recipe) -> None:
            save_head(path, made, how, space, report)
            log.info("calibrate: %s by %d rows; %s", o.method, read.rows, made.serves.format(path))
            if o.method != "temperature":
                _say_changes(made, of_head, read, o)

        return write

    return Job.one(o.out, made_by, compute)


def _say_changes(made: CalibratedHead, counted: HeadCounts, read: Counts, o: Calibrate) -> None:
    """Warn that a map of each class can change what is predicted, and how often it did."""
    rows = counted.scores[:, 1].sum(axis=1)
    fewest = rows.min(), read.classes[rows.argmin()]
    log.warning(
        "calibrate: %s: %s fits a map to each class (the fewest rows, %d, are of %s). The head "
        "predicted %d of %d counted rows right. Measure what changes: afltool evaluate %s TEST.h5 "
        "--against %s",
        *(_changes(made.changed(counted.scores), read.rows), o.method, *fewest),
        *(counted.right, read.rows, o.out, o.head),
    )


def _changes(changed: tuple[int, int] | None, rows: int) -> str:
    if changed is None:
        return f"predicted classes can change, and counts do not tell in how many of {rows} rows"
    span = " to ".join(map(str, sorted({*changed})))
    return f"predicted classes change in {span} of {rows} counted rows"


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


def _of_head(head: Path, digest: str, counts: Path, every: tuple[HeadCounts, ...]) -> HeadCounts:
    for one in every:
        if one.digest == digest:
            return one
    others = ", ".join(f"{one.name} {one.digest[:12]}" for one in every)
    raise MismatchError(
        f"{counts} counts rows of other heads ({others}) than {head} ({digest[:12]}): evaluate "
        "that one with --counts"
    )
