"""`AnalyticClassifier`: a head as a scikit-learn estimator, of features that are in memory."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .embeddings import make_imported_space
from .errors import AflError, MismatchError, UsageError
from .files.hdf5 import damage_as_error, recipe
from .files.heads import load_solved_head, save_head
from .heads import HEADS, make_head, options_class
from .heads.base import Block, Classifier, Head, Stored, binding, statistics_of
from .heads.calibration import CalibratedHead
from .heads.checks import compute_reported_scores
from .math.gram import FixedPoint, Rows, check_float32, encode, real
from .math.metrics import counting
from .math.metrics.figures import predicted_classes
from .math.rounding import Rounding
from .options.base import by_name, get_fields
from .options.features import NumberFormat
from .plugins import install
from .values.names import order_columns
from .values.ridge_spec import parse_bins, usual_bins
from .values.statistics import Context, Statistics
from .values.text import COLUMNS, json_text

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise UsageError(f"AnalyticClassifier needs scikit-learn: {install('sklearn')}") from None

BLOCK = 4096  # rows at a time


def _available_where(holds: Callable[[Head], bool], why: str) -> Any:
    """A method that is there where this ``holds`` of the head, fitted or asked for."""

    def check(estimator: AnalyticClassifier) -> bool:
        try:
            if holds(getattr(estimator, "head_", None) or estimator._make_head()):
                return True
        except AflError as error:  # no such head
            raise AttributeError(str(error)) from error
        raise AttributeError(f"a {estimator.head!r} head with these options {why}")

    return available_if(check)


class AnalyticClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """A classifier in closed form: sums over rows, then a linear system (AFL; see docs).

    Of heads that one round solves ``a + b`` is the estimator fitted on the rows of both, ``ab - b``
    is ``a`` again (b's rows are unlearned), and ``sum(estimators)`` is that of all. With
    ``fraction_bits`` the sums of linear, discriminant and safle are integers, and this is exact;
    random-features and deepafl also need ``{"compute": "fixed"}``. Otherwise it is up to rounding.

    Parameters:
        head: name of a head: linear, random-features, discriminant, deepafl, safle, softmax.
        ridge: final ridge λ ≥ 0, 'auto' (generalized cross-validation) or 'LO:HI:COUNT'; with
            'auto' a head that has no ridge, or none that is chosen so, keeps to its own.
        intercept: add a constant feature, where the head knows that option.
        fraction_bits: round features to int16 with so many fraction bits, 0 to 15, as feature
            files hold them; None: use them as they are.
        options: further options of the head by name, such as ``{"width": 1024}``.

    Attributes:
        classes_, n_features_in_: the labels, sorted, (C,); d.
        feature_names_in_: the names of the columns, where X had names. Sums and head have the
            columns in the order of their names, so that columns in another order add up.
        head_, report_: the solved head, and what solving found: ridge, rank, rounds.
        statistics_: the sums of heads of one round, else None.
        coef_, intercept_: of heads whose scores are linear in X, as scikit-learn has them: (C, d)
            and (C,); of two classes the second's minus the first's.
        n_iter_: the rounds of heads that take several.

    >>> X = [[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.8, 0.1]]
    >>> AnalyticClassifier(ridge=0.1).fit(X, ["a", "b", "a", "b"]).predict([[0.2, 0.8]]).tolist()
    ['a']
    """

    def __init__(
        self,
        head: str = "linear",
        *,
        ridge: str | float = "auto",
        intercept: bool = True,
        fraction_bits: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.head, self.ridge, self.intercept = head, ridge, intercept
        self.fraction_bits, self.options = fraction_bits, options

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from X (n, d) and labels y (n,), as many rounds as the head has."""
        X, y = self._check_rows(X, y, reset=True)
        self._take_classes(y)
        if self._bits is not None:
            found = Rounding(X.shape[1])
            for rows, x in zip(
                self._iter_blocks(X), np.split(X, range(BLOCK, len(X), BLOCK)), strict=True
            ):
                found.add(self._sort_labels(x), real(rows))
            found.check(self._columns and self._columns[1])
        head, report, rounds = self._unsolved_head(), dict[str, Any](), 0
        while head.phase() is not None:
            total = statistics_of(head, self._blocks(X, y), {}, self._context(head))[0]
            head, report = _solve_phase(head, total, report)
            rounds += 1
        return self._set_head(head, report, total if head.one_round else None, rounds)

    @_available_where(lambda head: head.one_round, "needs several rounds over all rows: use fit")  # type: ignore[untyped-decorator]  # scikit-learn's
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Add the rows X (n, d) with labels y (n,) to what was learned so far; ``classes``: all
        labels that will ever come, needed at the first call."""
        first = not hasattr(self, "head_")
        X, y = self._check_rows(X, y, reset=first)
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs classes=, all labels")
        if first:
            self._take_classes(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"the first call of partial_fit had the classes {self.classes_}, this one has "
                f"{np.unique(classes)}"
            )
        head = self._unsolved_head()
        more = statistics_of(head, self._blocks(X, y), {}, self._context(head))[0]
        return self._solve(more if first else self._sums() + more)

    def __add__(self, other: object) -> AnalyticClassifier:
        """The estimator of both estimators' rows."""
        return self._combine(other, operator.add)

    def __radd__(self, other: object) -> AnalyticClassifier:
        """``sum`` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> AnalyticClassifier:
        """The estimator of the rows that are not the other's: these are unlearned."""
        return self._combine(other, operator.sub)

    def _combine(self, other: object, operation: Any) -> AnalyticClassifier:
        if not isinstance(other, AnalyticClassifier):
            return NotImplemented  # type: ignore[no-any-return]  # Python asks the other one
        mine, theirs = self._sums(), other._sums()
        if not np.array_equal(self.classes_, other.classes_):
            raise MismatchError(
                f"the estimators have different classes: {self.classes_} and {other.classes_}; "
                "fit both with partial_fit(…, classes=all)"
            )
        both: AnalyticClassifier = clone(self)
        known = ("classes_", "n_features_in_", "feature_names_in_")
        both.__dict__.update({k: v for k, v in self.__dict__.items() if k in known})
        return both._solve(operation(mine, theirs))

    def _sums(self) -> Statistics:
        check_is_fitted(self)
        if self.statistics_ is None:
            raise UsageError(
                f"this {self.head!r} head was fitted in several rounds, or loaded from a file, "
                "which holds no statistics: only sums of one round add up"
            )
        return self.statistics_

    def _solve(self, total: Statistics) -> Self:
        return self._set_head(*_solve_phase(self._unsolved_head(), total, {}), total)

    def _set_head(
        self, head: Head, report: dict[str, Any], total: Statistics | None, rounds: int = 1
    ) -> Self:
        for name in ("coef_", "intercept_", "n_iter_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.head_: Classifier = head
        self.report_ = report
        self.statistics_: Statistics | None = total
        if (affine := head.affine()) is not None:
            W, b = affine
            W = W if self._columns is None else W[np.argsort(self._columns[0])]
            if len(self.classes_) == 2:
                W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
            self.coef_, self.intercept_ = W.T, b
        if rounds > 1:
            self.n_iter_ = rounds
        return self

    def _make_head(self) -> Head:
        """The head that the parameters name."""
        chosen = dict(self.options or {})
        known = get_fields(options_class(self.head)) if self.head in HEADS else {}
        for name in chosen.keys() & {"ridge", "intercept"}:
            raise UsageError(f"give {name}={chosen[name]!r} beside options: it is a parameter")
        if "intercept" in known:
            chosen["intercept"] = self.intercept
        if self.ridge != "auto" and "ridge" not in known:
            raise UsageError(f"a {self.head!r} head has no ridge; found ridge={self.ridge!r}")
        if "ridge" in known and (self.ridge != "auto" or known["ridge"].default is not None):
            chosen["ridge"] = self.ridge
        return make_head(self.head, chosen)

    def _unsolved_head(self) -> Head:
        return self._make_head().bind(self.n_features_in_, len(self.classes_))

    def _context(self, head: Stored) -> Context:
        kind = "float32" if self._bits is None else "int16"
        columns = self._columns and self._columns[1]
        space = make_imported_space("import", self.n_features_in_, kind, self._bits, columns)
        return Context(space, tuple(str(name) for name in self.classes_), binding(head))

    def _blocks(self, X: NDArray[Any], y: NDArray[Any]) -> Iterator[Block]:
        codes = np.searchsorted(self.classes_, y).astype(np.int64)
        known = self.classes_[np.minimum(codes, len(self.classes_) - 1)] == y
        if not np.all(known):
            raise ValueError(f"the label {y[~known][0]!r} is not in the classes {self.classes_}")
        return zip(self._iter_blocks(X), np.split(codes, range(BLOCK, len(X), BLOCK)), strict=True)

    def _iter_blocks(self, X: NDArray[Any]) -> Iterator[Rows]:
        """The rows in blocks, as feature files hold them."""
        for start in range(0, len(X), BLOCK):
            part, bits = X[start : start + BLOCK], self._bits
            if bits is None:
                check_float32(part, start)
                yield self._sort_labels(part)
            else:
                yield FixedPoint(self._sort_labels(encode(part, bits, start)), bits)

    @property
    def _columns(self) -> tuple[list[int], list[str]] | None:
        """The places and names of columns that have names, in the order of feature files."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else order_columns(list(names))

    def _sort_labels(self, x: NDArray[Any]) -> NDArray[Any]:
        return x if self._columns is None else x[:, self._columns[0]]

    @property
    def _bits(self) -> int | None:
        """``fraction_bits`` as a whole number in its range; `UsageError` for another one."""
        if self.fraction_bits is None:
            return None
        return NumberFormat(fraction_bits=self.fraction_bits).bits

    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        _ = self._bits  # refuses those that no file has
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        return X, y

    def _take_classes(self, labels: Any) -> None:
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(
                f"expected at least two classes, found {len(self.classes_)} class: {self.classes_}"
            )

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, C); of two classes (n,), the second one's minus the first one's."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.concatenate([self.head_.decision_function(rows) for rows in self._iter_blocks(X)])

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score, (n,); the first one of equal scores."""
        places = predicted_classes(self._scores(X))  # refuses before fit
        return np.asarray(self.classes_[places])

    @_available_where(
        lambda head: head.log_probabilities,
        "has no probabilities: use decision_function, or calibrate",
    )  # type: ignore[untyped-decorator]  # scikit-learn's
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities (n, C), of heads that define them: softmax and most discriminants."""
        scores = self._scores(X)  # refuses before fit
        return compute_reported_scores(self.head_, scores)

    def calibrate(self, X: Any, y: Any, method: str = "platt") -> Self:
        """Make probabilities of the scores by rows that were not fitted, as `afltool calibrate`:
        ``method`` is platt, temperature or isotonic."""
        check_is_fitted(self)
        X, y = self._check_rows(X, y, reset=False)
        head = _without_calibration(self.head_)
        bins = parse_bins(usual_bins(head.log_probabilities))
        shapes = counting.shapes(len(self.classes_), bins).items()
        counts = {name: np.zeros(shape, np.int64) for name, shape in shapes}
        for rows, codes in self._blocks(X, y):
            scores = head.decision_function(rows)
            counting.count(counts, scores, compute_reported_scores(head, scores), codes, bins)
        edges, names = np.array(bins.edges), [str(name) for name in self.classes_]
        self.head_ = CalibratedHead.of(head, names, counts[counting.SCORES], edges, method)
        return self

    def save(self, path: str | Path) -> Path:
        """Write the solved head as a head file, for imported features: in any number format, or in
        that of ``fraction_bits``. `UsageError` for labels that a file could not give back."""
        check_is_fitted(self)
        context, kind = self._context(self.head_), self.classes_.dtype.str
        try:
            parse_labels(context.classes, kind)
        except (TypeError, ValueError):
            raise UsageError(
                f"a head file cannot hold labels of type {self.classes_.dtype}, such as "
                f"{self.classes_[0]!r}: fit with y.astype(str)"
            ) from None
        if self._bits is None:
            space = {k: v for k, v in context.space.items() if k != "dtype"}
            context = replace(context, space=space)
        text = json_text(  # a search gives numbers of NumPy
            self.get_params(), default=lambda v: dict(v) if isinstance(v, Mapping) else v.item()
        )
        made_by = recipe("fit", {"params": json.loads(text)}, {"head": self.head_.digest()})
        more: dict[str, Any] = {"label_type": kind}
        if self._columns is not None:
            more[COLUMNS] = list(self.feature_names_in_)  # in the order of X
        save_head(Path(path), self.head_, made_by, context, report=self.report_, **more)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> AnalyticClassifier:
        """The estimator of a solved head file; it predicts, and has no statistics to add."""
        file = head, header = load_solved_head(Path(path))
        plain = _without_calibration(head)
        options = by_name(type(plain.options), plain.options.as_dict())
        every = {name: options.pop(name, None) for name in ("ridge", "intercept")}
        own = {name: value for name, value in every.items() if value is not None}
        bits = header["space"]["fraction_bits"]
        loaded = cls(plain.name, fraction_bits=bits, options=options, **own)
        with damage_as_error(Path(path)):
            loaded.classes_ = parse_labels(
                header["classes"], header["provenance"].get("label_type")
            )
            if (columns := header["space"].get(COLUMNS)) is not None:
                names = header["provenance"].get(COLUMNS, columns)
                if order_columns(names)[1] != columns:
                    raise ValueError(f"the columns are {names} and {columns}")
                loaded.feature_names_in_ = np.array(names, object)
        loaded.n_features_in_ = int(header["dim"])
        return loaded._set_head(head, file.report, None)


def _solve_phase(
    head: Head, total: Statistics, before: dict[str, Any]
) -> tuple[Head, dict[str, Any]]:
    """The head one phase further, and its report after the one ``before``."""
    try:
        after, done = head.absorb(total)
        return after, done.report(before)
    except AflError as error:
        raise ValueError(f"the head cannot be solved: {error}") from error


def _without_calibration(head: Any) -> Any:
    return head.inner if isinstance(head, CalibratedHead) else head


def parse_labels(names: Sequence[str], kind: str | None) -> NDArray[Any]:
    """The labels whose texts are ``names``, in the NumPy type ``kind``; None: texts. Raises
    `TypeError` or `ValueError` where that type has no labels of these texts."""
    texts = np.array(names)
    wanted = texts.dtype if kind is None else np.dtype(kind)
    if wanted.kind not in "biufMUO" or wanted.itemsize > 4 * 1000:  # a label has 1,000 characters
        raise ValueError(f"labels of type {wanted}")
    labels: NDArray[Any] = texts == "True" if wanted.kind == "b" else texts.astype(wanted)
    if [str(label) for label in labels] != list(names):
        raise ValueError(f"labels {names} are not of type {wanted}")
    return labels
