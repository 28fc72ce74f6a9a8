"""Stage `calibrate`: a solved head and counts of rows that it scored → its probabilities."""

from __future__ import annotations

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.counts import read_counts
from ..files.hdf5 import recipe
from ..files.heads import load_solved_head, save_head
from ..heads.calibration import CalibratedHead
from ..options.evaluation import Calibrate
from ..progress import log
from ..values.statistics import Context
from .runner import Files, Job, StageFunction


@StageFunction
def calibrate(o: Calibrate, files: Files) -> Job:
    """Write a head whose scores are log-probabilities, by a total of ``counts`` of its rows.

    Best of rows that the head was not solved from. The map that ``method`` names is fitted to bins
    of scores, whose middles stand for the scores. The counts stay in the head, for `predict` with
    ``coverage``.
    """
    solved, header = load_solved_head(o.head)
    if isinstance(solved, CalibratedHead):
        raise UsageError(f"{o.head} is calibrated already: give the head that it was made of")
    read = read_counts(o.counts)
    counted = next((one for one in read.heads if one.digest == header["digest"]), None)
    if counted is None or list(read.classes) != header["classes"]:
        raise MismatchError(
            f"{o.counts} counts other heads or classes than those of {o.head}: evaluate this head "
            "with --counts"
        )
    if not read.rows:
        raise InvalidDataError(f"{o.counts} counts 0 rows: there is nothing to calibrate by")
    if not counted.probabilities and counted.at_ends > 0.5:  # these may rightly be near 0 and 1
        raise InvalidDataError(
            f"{counted.at_ends:.0%} of the rows of {o.counts} have the score of their class in a "
            f"bin at an end of {counted.edges[0]:g} to {counted.edges[-1]:g}, or beyond: no map "
            "can be fitted to it. Count again with wider bins (--bins LO:HI:COUNT)"
        )

    def compute() -> None:
        made = CalibratedHead.of(solved, read.classes, counted.scores, counted.edges, o.method)
        report = {**header["report"], "calibrated_by": o.method, "calibrated_on": read.rows}
        space = Context(header["space"], tuple(header["classes"]))
        save_head(o.out, made, made_by, space, report)
        log.info("calibrate: %s by %d rows", o.method, read.rows)
        rows = counted.scores[:, 1].sum(axis=1)
        if o.method != "temperature":  # the only map of all classes
            log.warning(
                "calibrate: predicted classes can change: %s fits a map to each class (the fewest "
                "rows, %d, are of %s). The head predicted %d of %d counted rows right. Measure "
                "what changes: afltool evaluate %s TEST.h5 --against %s",
                *(o.method, rows.min(), read.classes[rows.argmin()]),
                *(counted.right, read.rows, o.out, o.head),
            )

    inputs = {"head": header["digest"], "counts": read.statistics.digest()}
    made_by = recipe("calibrate", o.recipe_options(), inputs)
    return Job.for_file(o.out, made_by, compute)
