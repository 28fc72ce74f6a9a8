"""Stage `evaluate`: a solved head and features with labels → accuracies and other figures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..cache.cache import NO_CACHE, Cache
from ..files.atomic import together
from ..files.columns import column_by_row
from ..files.features import Features, open_features
from ..files.heads import HeadFile, check_fits, load_head, load_solved_head, not_solved
from ..files.tables import check_table, write_records
from ..heads.base import Head, round_features
from ..heads.checks import probabilities
from ..math.fixedpoint import Rows
from ..math.metrics.counts import Metrics, score_metrics
from ..math.metrics.intervals import mcnemar
from ..math.metrics.scored_rows import WRONG, Kept
from ..math.metrics.separability import Separability
from ..math.metrics.summary import by_part, curves, summary
from ..options.solving import EvaluateOptions
from ._figures import check_figures, figures_asked, positive_of, said_of
from ._rounds import accuracies, after_each_round, rounds_of, separabilities, with_training

OF_TRAINING = ("each_round", "earlier", "separability")  # what is asked of the training rows, too
AT_ONCE = 256  # rows whose features are made together: those of codes are dense here


@together()  # the training rows may be refused after the table of errors is made
def evaluate(
    head: Path,
    features: Path,
    options: EvaluateOptions = EvaluateOptions(),
    *,
    overwrite: bool = False,
    cache: Cache = NO_CACHE,
) -> dict[str, Any]:
    """Top-1 and top-5 (fractions), n, per-class accuracy and the confusion matrix, as a dict.

    The features must come from the same backbone, preprocessing and number format as those that
    the head was solved from, with the same classes. ``each_round`` adds ``rounds``: the rounds of
    the head's report, with the accuracies of the solved head after each round that this file
    holds. The head need not be solved then: its best weights so far are evaluated.

    ``separability`` adds a list of that name: CSR, IFS and DM of the features that the head makes
    of the rows, an entry for each layer; see `metrics.Separability`. ``rounds`` have them as well.

    ``earlier``: head files of earlier rounds, in any order, for the rounds that it does not hold.
    ``train``: training features; adds ``train`` (top-1, top-5, n) and ``train_top1`` of rounds.
    ``metrics``, ``by``, ``against`` add entries of the same names; ``errors`` writes a table.
    ``positive``: the class that sensitivity, specificity and auc are of, against the rest; of two
    classes the second one if it is not given. An entry of ``metrics`` names it as ``positive``, or
    has ``average`` 'macro' where it is a mean over classes.
    """
    o = options
    if o.train is not None:
        alone = replace(o, train=None)
        found = evaluate(head, features, alone, overwrite=overwrite, cache=cache)
        alike = EvaluateOptions(**{name: getattr(o, name) for name in OF_TRAINING})
        return with_training(found, evaluate(head, o.train, alike, cache=cache))
    if o.each_round and o.earlier:
        last = replace(o, earlier=())

        def one(path: Path) -> dict[str, Any]:
            if path == head:
                return evaluate(path, features, last, overwrite=overwrite, cache=cache)
            return evaluate(path, features, EvaluateOptions(each_round=True), cache=cache)

        with open_features(features, cache=cache) as rows:
            rounds_in = partial(_rounds_in, rows, cache)
            return after_each_round([*o.earlier, head], one, rounds_in, cache)
    names = figures_asked(o)
    if o.errors is not None:
        check_table(o.errors)
    file = load_head(head, cache)
    solved, header = file
    if solved.phase() is not None and not (o.each_round and header["classes"]):
        raise not_solved(solved, head)
    check_figures(solved, names)
    again = not solved.options.one_round()
    with open_features(features, cache=cache, again=again) as rows:
        check_fits(head, header, rows)
        positive = positive_of(names, rows.classes, o.positive)
        keeping = Kept(
            rows=bool(names or o.against), scores="auc" in names, wrong=o.errors is not None
        )
        other = None if o.against is None else _other(o.against, rows)
        parts = None if o.by is None else column_by_row("--by", o.by, rows.row_ids)
        groups = None if o.group is None else column_by_row("--group", o.group, rows.row_ids)
        apart: dict[str, Separability] | None = {} if o.separability else None
        counted = _score(file, head, rows, o.each_round, keeping, other, apart)
        measured = separabilities(apart or {})
        found = {
            **list(counted.values())[-1].as_dict(rows.classes),
            "head": {"path": str(head), "digest": header["digest"], "name": solved.name},
            "features": {"path": str(features), "digest": rows.header["digest"]},
            **({} if apart is None else {"separability": measured}),
        }
        if o.each_round:
            found["rounds"] = rounds_of(file.rounds, accuracies(counted), measured)
    scored = keeping.scored()
    if names and scored is not None:
        at = None if groups is None else np.unique(groups, return_inverse=True)[1]
        scored = replace(scored, positive=positive)
        of_class = None if positive is None else rows.classes[positive]
        found["metrics"] = {
            name: {**one, **said_of(name, of_class)}
            for name, one in summary(scored, names, o.samples, o.seed, at).items()
        }
        found |= curves(scored, names, rows.classes)
        if parts is not None:
            found["by"] = by_part(scored, names, parts)
    if o.against is not None and scored is not None and other is not None:
        right = scored.predicted == scored.y
        found["against"] = {"path": str(o.against), **mcnemar(right, other[1].right())}
    if o.errors is not None:
        write_records(keeping.wrong, o.errors, overwrite, o.formulas, WRONG)
    return found


def right_rows(head: Path, features: Path) -> tuple[NDArray[np.bool_], NDArray[np.bytes_]]:
    """Whether the solved head predicts each row right, bool (n,), and the row ids, (n,)."""
    solved = load_solved_head(head)
    with open_features(features) as rows:
        check_fits(head, solved.header, rows)
        keeping = Kept(rows=True)
        _score(solved, head, rows, False, keeping, None, None)
        return keeping.right(), rows.row_ids.copy()


def _rounds_in(rows: Features, cache: Cache, path: Path) -> set[str]:
    """The rounds that a head file can be evaluated after: those that it scores one row with."""
    found = load_head(path, cache)
    check_fits(path, found.header, rows)
    return {found.phase_of(name) for name, _ in found.head.round_scores(rows.rows(0, 1))}


def _other(path: Path, rows: Features) -> tuple[Head, Kept]:
    head, header = load_solved_head(path)
    check_fits(path, header, rows)
    return head, Kept(rows=True)


def _score(
    file: HeadFile,
    path: Path,
    rows: Features,
    each_round: bool,
    keeping: Kept,
    other: tuple[Head, Kept] | None,
    apart: dict[str, Separability] | None,
) -> dict[str, Metrics]:
    """Counts of every round, or of the solved head as the only one; both keep what they keep.

    ``apart``: where the scatters of the head's features go, layer by layer.
    """
    counted: dict[str, Metrics] = {}
    solved = file.head
    none = Metrics(np.zeros((len(rows.classes),) * 2, dtype=np.int64), 0)
    with progress.task("evaluate", len(rows), "rows") as task:
        for start, X in rows.blocks():
            progress.stop_point()
            y = rows.labels[start : start + len(X)]
            found = solved.round_scores(X) if each_round else [("", solved.scores(X))]
            S = None
            for part, S in found:
                name = file.phase_of(part)
                counted[name] = counted.get(name, none) + score_metrics(S, y)
            if S is None:
                raise not_solved(solved, path)
            if apart is not None:
                _set_apart(apart, file, X, y, len(rows.classes))
            ids = rows.row_ids[start : start + len(X)]
            keeping.add(S, probabilities(solved, S), y, ids, rows.classes)
            if other is not None:
                head, kept = other
                kept.add(head.scores(X), None, y, ids, rows.classes)
            task.advance(len(X))
    return counted


def _set_apart(
    found: dict[str, Separability], head: HeadFile, X: Rows, y: NDArray[np.int64], classes: int
) -> None:
    """Add the features that the head makes of these rows to the scatters of their layers."""
    for start in range(0, len(y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        for of, phi in round_features(head.head, X[part]):
            name = head.phase_of(of)
            if name not in found:
                found[name] = Separability(classes, phi.shape[1])
            found[name].add(phi, y[part])
