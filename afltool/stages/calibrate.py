"""Stage `calibrate`: a solved head and counts of rows that it scored → its probabilities."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.counts import HeadCounts, read_counts
from ..files.hdf5 import recipe, up_to_date
from ..files.heads import load_solved_head, save_head
from ..heads.calibrated.head import CalibratedHead
from ..options.evaluation import Calibrate
from ..progress import log
from ..values.statistics import Context


def calibrate(o: Calibrate) -> Path:
    """Write a head whose scores are log-probabilities, by a total of ``counts`` of its rows.

    ``counts``: what `counts` wrote at sites, added up; best of rows that the head was not solved
    from. The map that ``method`` names is fitted to bins of scores, whose middles stand for the
    scores. The counts stay in the head, for `predict` with ``coverage``.
    """
    head, counts, out, overwrite = o.head, o.counts, o.out, o.overwrite
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
    if not up_to_date(out, made_by, overwrite):
        method = o.method
        made = CalibratedHead.of(solved, read.classes, of_head.scores, of_head.edges, method)
        report = {**header["report"], "calibrated_by": method, "calibrated_on": read.rows}
        space = Context(header["space"], tuple(header["classes"]))
        save_head(out, made, made_by, space, report=report)
        log.info("calibrate: %s by %d rows; %s", method, read.rows, made.serves.format(out))
        if method != "temperature":
            rows = of_head.scores[:, 1].sum(axis=1)
            fewest = rows.min(), read.classes[rows.argmin()]
            log.warning(
                "calibrate: %s: %s fits a map to each class (the fewest rows, %d, are of %s). The "
                "head predicted %d of %d counted rows right. Measure what changes: "
                "afltool evaluate %s TEST.h5 --against %s",
                *(_changes(made.changed(of_head.scores), read.rows), method, *fewest),
                *(of_head.right, read.rows, out, head),
            )
    return out


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
