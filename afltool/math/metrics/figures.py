"""Figures of scored rows, each as scikit-learn defines it, with intervals; rows may have weights.

A weight of 0 leaves a row out, a weight of 2 counts it twice: so one site's rows, or a bootstrap
sample, are given by weights alone. ``w`` is float64 (n,) in every function; a figure that the rows
do not determine is NaN, in JSON null. `predicted_classes` alone turns scores into classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError
from ...values.arrays import F64, I64, Array
from ..gram import Rows

BINS = 15  # of the expected calibration error
SCORES_AT_ONCE = 2**23  # scores of the rows that are scored together: 64 MB
POINTS = 200  # of a drawn ROC curve
MANY = 1000  # classes from which on nothing has an entry for each pair of them
CURVES = 100  # of so many classes
LEVELS = 0.025, 0.975  # ends of an interval, as shares of the samples


def predicted_classes(S: F64) -> I64:
    """The predicted class of each row, int64 (n,): the first one of the highest scores S (n, C).

    A score may be −∞, of a class that the head never predicts; `InvalidDataError` for a row whose
    highest score is not finite.

    >>> predicted_classes(np.array([[-3.0, -1.0], [0.5, 0.5], [-np.inf, -9.0]])).tolist()
    [1, 0, 1]
    """
    predicted: I64 = S.argmax(axis=1)  # of NaN, where there is one
    highest = S[np.arange(len(S)), predicted]
    if not np.isfinite(highest).all():
        wrong = highest[~np.isfinite(highest)][0]
        raise InvalidDataError(
            f"the highest score of a row is {wrong}, so it has no class. Check the features for "
            "very large values"
        )
    return predicted


def top_classes(S: F64, top: int) -> I64:
    """The classes with the highest scores, int64 (n, top), equal ones in class order."""
    predicted = predicted_classes(S)[:, None]
    return predicted if top == 1 else np.argsort(-S, axis=1, kind="stable")[:, :top]


def places(S: F64, y: I64, predicted: I64) -> I64:
    """The place of each row's own class y among its scores, from 0 on, (n,); see `top_classes`."""
    found = np.zeros(len(y), dtype=np.int64)
    wrong = np.flatnonzero(predicted != y)
    others, own = S[wrong], S[wrong, y[wrong]][:, None]
    earlier = np.arange(S.shape[1]) < y[wrong, None]
    found[wrong] = ((others > own) | ((others == own) & earlier)).sum(axis=1)
    return found


def cut_blocks(blocks: Iterable[tuple[int, Rows]], classes: int) -> Iterator[tuple[int, Rows]]:
    """Blocks (first row, rows), cut so that their scores of many classes fit into memory."""
    most = max(1, SCORES_AT_ONCE // classes)
    for start, X in blocks:
        for at in range(0, len(X), most):
            yield start + at, X[at : at + most]


@dataclass(frozen=True)
class Tally:
    """What a confusion matrix says of each class, (C,): rows that are predicted ``right``, rows of
    its ``own``, and rows ``predicted`` as it. Figures of classes need no more."""

    right: Array
    own: Array
    predicted: Array

    @classmethod
    def of(cls, confusion: Array) -> Tally:
        """That of a matrix (C, C), rows are true classes."""
        return cls(confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0))

    @classmethod
    def from_predictions(cls, y: I64, predicted: I64, classes: int, w: F64 | None = None) -> Tally:
        """That of rows of classes y that are predicted as ``predicted``; ``w``: their weights."""
        hit = y == predicted
        parts = (y[hit], None if w is None else w[hit]), (y, w), (predicted, w)
        return cls(*(np.bincount(one, of, classes) for one, of in parts))

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Scored:
    """Rows that a head scored: ``y`` and ``predicted`` int64 (n,); ``own`` and ``confidence``
    float64 (n,), the scores of the row's own and predicted class; ``scores`` (n, C) as
    `compute_reported_scores`, if a figure needs them; ``positive``: the class of figures of one
    class."""

    y: I64
    predicted: I64
    own: F64
    confidence: F64
    classes: int
    scores: F64 | None = None
    positive: int | None = None

    @classmethod
    def of(cls, S: F64, reported: F64, y: I64, keep_scores: bool = True) -> Scored:
        """Rows with scores S (n, C), which decide, and the ``reported`` ones, which are rated."""
        rows, predicted = np.arange(len(y)), predicted_classes(S)
        own, confidence = reported[rows, y], reported[rows, predicted]
        return cls(y, predicted, own, confidence, S.shape[1], reported if keep_scores else None)

    @classmethod
    def join(cls, parts: Sequence[Scored]) -> Scored:
        """The rows of all parts, one after another."""
        names = ["y", "predicted", "own", "confidence"]
        names += [] if parts[0].scores is None else ["scores"]
        rows: dict[str, Any] = {n: np.concatenate([getattr(p, n) for p in parts]) for n in names}
        return replace(parts[0], **rows)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the prediction of each row is right, bool (n,)."""
        return np.equal(self.y, self.predicted)

    def tally(self, w: F64) -> Tally:
        """Weight of the rows of each class."""
        return Tally.from_predictions(self.y, self.predicted, self.classes, w)

    @cached_property
    def ranked(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each class the rows from its lowest score on, and where equal scores begin."""
        assert self.scores is not None
        orders = []
        for scores in self.scores.T:
            order = np.argsort(scores, kind="stable")
            ordered = scores[order]  # −∞ among them, so no differences
            orders.append((order, np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])))
        return orders

    def weights_by_score(self, k: int, w: F64) -> tuple[F64, F64]:
        """Weight at each score of class k, the lowest first: of other rows and of its own."""
        order, starts = self.ranked[k]
        own, weight = self.y[order] == k, w[order]
        others, mine = np.where(own, 0, weight), np.where(own, weight, 0)
        return np.add.reduceat(others, starts), np.add.reduceat(mine, starts)


def shares(over: Array, under: Array) -> F64:
    """over / under; NaN where ``under`` is 0."""
    nan = np.full(len(under), np.nan)
    return np.asarray(np.divide(over, under, out=nan, where=under > 0))


def nan_mean(values: F64) -> float:
    """The mean without NaN; NaN if all are NaN."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def nulls(values: Iterable[float]) -> list[float | None]:
    """For JSON: what is no number as null."""
    return [float(value) if isfinite(value) else None for value in values]


def sensitivities(of: Tally) -> F64:
    """TP / (TP + FN) of each class, (C,): the recall."""
    return shares(of.right, of.own)


def specificities(of: Tally) -> F64:
    """TN / (TN + FP) of each class, (C,): the recall of all other classes together."""
    others = of.own.sum() - of.own
    return shares(others - (of.predicted - of.right), others)


def f1_scores(of: Tally) -> F64:
    """2 TP / (2 TP + FP + FN) of each class, (C,); NaN for a class that has no rows and is never
    predicted."""
    return shares(2 * of.right, of.predicted + of.own)


def _mean(values: Array, w: F64) -> float:
    """The mean of values of rows with weights; NaN without rows."""
    return float(w @ values / w.sum()) if w.any() else float("nan")


def areas(rows: Scored, w: F64) -> F64:
    """Area under the ROC curve of each class against the rest, (C,), equal scores count half (Mann
    and Whitney's U); NaN for a class with no rows or with all rows."""
    found = np.full(rows.classes, np.nan)
    for k in range(rows.classes):
        outside, inside = rows.weights_by_score(k, w)
        if pairs := inside.sum() * outside.sum():
            found[k] = (inside * (np.cumsum(outside) - outside / 2)).sum() / pairs
    return found


def log_loss(rows: Scored, w: F64) -> float:
    """Mean of −log p of the row's own class; p at least the spacing of float64 at 1."""
    return _mean(-np.log(np.maximum(rows.own, np.finfo(float).eps)), w)


def reliability(rows: Scored, w: F64) -> dict[str, F64]:
    """Per bin of confidence ((0, 1] in `BINS` equal ones): its weight, confidence and accuracy.

    Guo et al., On Calibration of Modern Neural Networks, ICML 2017, section 2.
    """
    sure = rows.confidence
    at = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    sums: list[Any] = [np.bincount(at, w * of, BINS) for of in (1.0, sure, rows.right)]
    weight, confidence, right = sums
    accuracy = shares(right, weight)
    return {"weight": weight, "confidence": shares(confidence, weight), "accuracy": accuracy}


def ece(rows: Scored, w: F64) -> float:
    """Expected calibration error: Σ weight · |accuracy − confidence| over bins / Σ weight."""
    bins = reliability(rows, w)
    return _mean(np.abs(np.nan_to_num(bins["accuracy"] - bins["confidence"])), bins["weight"])


def roc(rows: Scored, k: int) -> dict[str, list[float]]:
    """The ROC curve of class k against the rest, shares of other and own rows above a score: at
    most `POINTS` points, from (0, 0) to (1, 1); empty where there are no rows of one of both."""
    weights = rows.weights_by_score(k, np.ones(len(rows.y)))
    if not all(w.sum() for w in weights):
        return {"false_positive": [], "true_positive": []}
    false, true = (np.r_[0.0, np.cumsum(w[::-1]) / w.sum()] for w in weights)
    at = np.unique(np.linspace(0, len(true) - 1, min(POINTS, len(true))).round().astype(int))
    return {"false_positive": false[at].tolist(), "true_positive": true[at].tolist()}


@dataclass(frozen=True)
class Figure:
    """A named figure of ``each`` class (C,), or of all rows. ``needs``: "", "scores" or
    "probabilities". ``one_class``: of the positive class against the rest; ``mean``: the mean over
    classes (macro), or with ``one_class`` where no class is positive."""

    each: Callable[[Scored, F64], F64 | float]
    needs: str = ""
    one_class: bool = False
    mean: bool = False

    def of(self, rows: Scored, w: F64) -> float:
        """Its value on rows with weights; of each class that of the positive one, or the mean."""
        found = np.atleast_1d(self.each(rows, w))
        if self.one_class and rows.positive is not None:
            return float(found[rows.positive])
        return nan_mean(found)


def _by_class(of: Callable[[Tally], F64], one_class: bool = False, mean: bool = False) -> Figure:
    return Figure(lambda rows, w: of(rows.tally(w)), "", one_class, mean)


FIGURES: dict[str, Figure] = {
    "accuracy": Figure(lambda rows, w: _mean(rows.right, w)),
    "balanced-accuracy": _by_class(sensitivities),
    "f1": _by_class(f1_scores, mean=True),
    "auc": Figure(areas, "scores", one_class=True, mean=True),
    "sensitivity": _by_class(sensitivities, one_class=True),
    "specificity": _by_class(specificities, one_class=True),
    "macro-sensitivity": _by_class(sensitivities, mean=True),
    "macro-specificity": _by_class(specificities, mean=True),
    "log-loss": Figure(log_loss, "probabilities"),
    "ece": Figure(ece, "probabilities"),
}


def summary(
    rows: Scored, names: Sequence[str], samples: int, seed: int, groups: I64 | None = None
) -> dict[str, dict[str, float | None]]:
    """Value and ends of the 95 % percentile interval of each figure by name, of so many bootstrap
    ``samples`` (Efron and Tibshirani, 1993, chapter 13); null where no sample determines it."""

    def values(w: F64) -> list[float]:
        return [FIGURES[name].of(rows, w) for name in names]

    found, n = {}, len(rows.y)
    drawn = [values(w) for w in draw_resample(n, samples, seed, groups)]
    for i, (name, value) in enumerate(zip(names, values(np.ones(n)), strict=True)):
        known = [one[i] for one in drawn if isfinite(one[i])]
        ends = np.quantile(known, LEVELS) if known else [np.nan] * (2 if samples else 0)
        every = zip(("value", "low", "high"), nulls([value, *ends]), strict=False)
        found[name] = dict(every)
    return found


def figures_by_part(
    rows: Scored, names: Sequence[str], parts: Sequence[str]
) -> dict[str, dict[str, float | int | None]]:
    """Number of rows and figures for each value in ``parts``, which has one value per row."""
    column, by_name = np.array(parts, dtype=object), {}
    for part in sorted(set(parts)):
        w = (column == part).astype(float)
        values = nulls(FIGURES[name].of(rows, w) for name in names)
        by_name[part] = {"n": int(w.sum()), **dict(zip(names, values, strict=True))}
    return by_name


def select_curves(areas: F64, wanted: Iterable[int] = ()) -> list[int]:
    """The classes whose ROC curves are told: all; of `MANY` those ``wanted``, and the `CURVES` with
    the smallest areas."""
    if len(areas) < MANY:
        return list(range(len(areas)))
    return sorted({*wanted, *np.argsort(areas, kind="stable")[:CURVES].tolist()})


def curves(rows: Scored, names: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    """The data of pictures: bins of confidence for ece, ROC curves of the classes for auc."""
    found, every = dict[str, Any](), np.ones(len(rows.y))
    if "ece" in names:
        found["reliability"] = {name: nulls(a) for name, a in reliability(rows, every).items()}
    if "auc" in names:
        sizes = areas(rows, every)
        told = select_curves(sizes, [] if rows.positive is None else [rows.positive])
        pairs = zip(told, nulls(sizes[told]), strict=True)
        found["roc"] = {classes[k]: {**roc(rows, k), "auc": area} for k, area in pairs}
    return found


def draw_resample(rows: int, samples: int, seed: int, groups: I64 | None = None) -> Iterator[F64]:
    """How often each row is in each of ``samples`` samples with replacement, float64 (n,). With
    ``groups`` (n,) int64, from 0: of whole groups, since rows of one patient are not
    independent."""
    rng = np.random.default_rng([seed, rows])
    units = rows if groups is None else int(groups.max(initial=-1)) + 1
    for _ in range(samples):
        times = np.bincount(rng.integers(0, units, units), minlength=units).astype(float)
        yield times if groups is None else times[groups]


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """McNemar's exact two-sided test (Psychometrika 12, 1947) of two heads that are right on these
    rows, bool (n,): how many only the first predicts right follows Binomial(both, ½)."""
    from scipy.stats import binomtest

    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    differ = only_first + only_second
    p = binomtest(only_first, differ).pvalue if differ else 1.0
    return {"only_this": only_first, "only_other": only_second, "p_value": float(p)}
