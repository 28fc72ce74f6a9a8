"""Stage `evaluate`: a solved head and features with labels → accuracies and other figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import cores, memory, progress
from ..errors import UsageError
from ..files.features import Features, meaning, open_features
from ..files.hdf5 import read_header, recipe
from ..files.heads import HeadFile, check_fits, load_head, load_solved_head, not_solved
from ..files.tables import check_table, column_by_row, write_records
from ..heads.base import LAST, Head
from ..heads.checks import reported_scores
from ..math.gram import Rows
from ..math.metrics.counting import TOPS, Metrics, confusion_entry, score_metrics
from ..math.metrics.figures import FIGURES, Scored, by_part, curves, cut, summary
from ..memory import NO_CACHE, Cache
from ..options.common import on_cores
from ..options.evaluation import Evaluate, EvaluateOptions
from ..progress import event, log
from ..values.arrays import I64
from ._rounds import accuracies, after_each_round, rounds_of, with_training

if TYPE_CHECKING:
    from ..math.metrics.separability import Separability

AT_ONCE = 256  # rows whose features are made together: those of codes are dense here
SHOWN = 20  # classes that a message names
WRONG = ["row", "true", "predicted", "score", "score_of_true"]  # of a row that is wrong


@on_cores
def evaluate(o: Evaluate, *, cache: Cache = NO_CACHE) -> dict[str, Any]:
    """Top-1 and top-5 (fractions), n, per-class accuracy and the confusion matrix, as a dict.

    ``top5`` is left out where there are five classes or fewer. From 1,000 classes on ``confusion``
    has the cells that are not 0: numbers of the ``true`` and ``predicted`` class, and ``rows``.

    The features must come from the same backbone, preprocessing and number format as those that
    the head was solved from, with the same classes. ``each_round`` adds ``rounds``: the rounds of
    the head's report, with the accuracies of the solved head after each round that this file
    holds. The head need not be solved then: its best weights so far are evaluated.

    ``separability`` adds a list of that name: CSR, IFS and DM of the features that the head makes
    of the rows, an entry for each layer; see `metrics.Separability`. ``rounds`` have them as well.

    ``metrics``, ``by``, ``against`` add entries of the same names; ``errors`` writes a table.
    ``positive``: the class that sensitivity, specificity and auc are of, against the rest; of two
    classes the second one if it is not given. An entry of ``metrics`` names it as ``positive``, or
    has ``average`` 'macro' where it is a mean over classes.
    """
    names = _figures_asked(o)
    if o.errors is not None:
        check_table(o.errors)
    file = load_head(o.head, cache)
    solved, header = file
    if solved.phase() is not None and not (o.each_round and header["classes"]):
        raise not_solved(solved, o.head)
    _check_figures(solved, names)
    again = not solved.options.one_round()
    with open_features(o.features, cache=cache, again=again) as rows:
        check_fits(o.head, header, rows)
        positive = _positive(names, rows.classes, o.positive)
        other = None if o.against is None else _other(o.against, rows)
        parts = None if o.by is None else column_by_row("--by", o.by, rows.row_ids)
        groups = None if o.group is None else column_by_row("--group", o.group, rows.row_ids)
        done = _Pass(file, o.head, rows, o, names, other)
        report = done.report()
        if scored := done.scored():
            rated = replace(scored[0], positive=positive)
            report |= _figures(o, names, rated, rows.classes, parts, groups)
        if o.against is not None:
            report["against"] = {"path": str(o.against), **_compared(*scored)}
        wrong = [] if o.errors is None else _wrong(scored[0], rows)
    if o.errors is not None:
        write_records(wrong, o.errors, o.overwrite, WRONG)
    figures = {k: report[k] for k in (*TOPS, "n") if k in report}
    event("metrics", head=o.head, features=o.features, figures=figures)
    return report


def evaluate_run(o: EvaluateOptions, files: Mapping[str, Any], cache: Cache) -> dict[str, Any]:
    """`evaluate` of the last head of a run, whose earlier heads and training rows are there, too.

    ``files``: ``head`` and ``features``; ``earlier``: the files of the rounds before, in any order,
    for the rounds that the head does not hold; ``train``: training features, which add ``train``
    (top-1, top-5, n) and ``train_top1`` of rounds.
    """

    def measured(features: Path) -> dict[str, Any]:
        def one(head: Path) -> dict[str, Any]:
            apart = o.separability and head == files["head"]
            asked = Evaluate(head, features, each_round=o.each_round, separability=apart)
            return evaluate(asked, cache=cache)

        if not files.get("earlier"):
            return one(files["head"])
        with open_features(features, cache=cache) as rows:
            heads, rounds_in = [*files["earlier"], files["head"]], partial(_rounds_in, rows, cache)
            return after_each_round(heads, one, rounds_in, cache)

    found = measured(files["features"])
    return with_training(found, measured(files["train"])) if "train" in files else found


def recipe_of(
    inputs: Mapping[str, Any], options: EvaluateOptions, _: Mapping[str, Any], cache: Cache
) -> dict[str, Any]:
    """What the figures depend on: every option that is given, heads and rows by their digests."""
    parts: dict[str, Any] = {}
    for role, given in inputs.items():
        files = given if isinstance(given, tuple) else (given,)
        kind = "features" if role in ("features", "train") else "head"
        headers = [read_header(file, kind, cache) for file in files]
        parts[role] = [
            meaning(one) if kind == "features" else [one["digest"], one["classes"]]
            for one in headers
        ]
    values = {name: str(one) for name, one in options.changed().items() if name not in inputs}
    return recipe("evaluate", values, parts)


def right_rows(head: Path, features: Path) -> tuple[NDArray[np.bool_], NDArray[np.bytes_]]:
    """Whether the solved head predicts each row right, bool (n,), and the row ids, (n,)."""
    solved = load_solved_head(head)
    with open_features(features) as rows:
        check_fits(head, solved.header, rows)
        done = _Pass(solved, head, rows, EvaluateOptions(), ("accuracy",))
        done.score()
        return done.scored()[0].right, rows.row_ids.copy()


def _compared(ours: Scored, theirs: Scored) -> dict[str, Any]:
    """How two heads differ on the same rows, with McNemar's test."""
    from ..math.metrics.intervals import mcnemar

    differ = int((ours.predicted != theirs.predicted).sum())
    return {"predicted_differently": differ, **mcnemar(ours.right, theirs.right)}


def _figures(
    o: EvaluateOptions,
    names: Sequence[str],
    scored: Scored,
    classes: Sequence[str],
    parts: list[str] | None,
    groups: list[str] | None,
) -> dict[str, Any]:
    """The figures asked for, their curves, and those of parts of the rows."""
    if not names:
        return {}
    at = None if groups is None else np.unique(groups, return_inverse=True)[1]
    of_class = None if scored.positive is None else classes[scored.positive]
    every = summary(scored, names, o.samples, o.seed, at).items()
    report: dict[str, Any] = {
        "metrics": {name: {**one, **_said_of(name, of_class)} for name, one in every},
        **curves(scored, names, classes),
    }
    return report if parts is None else {**report, "by": by_part(scored, names, parts)}


def _figures_asked(o: EvaluateOptions) -> tuple[str, ...]:
    """The figures asked for; those of parts are accuracies where none is named."""
    if o.metrics is not None:
        return figure_names(o.metrics)
    return ("accuracy",) if o.by is not None or o.group is not None else ()


def figure_names(text: str | Iterable[Any]) -> tuple[str, ...]:
    """Names of figures from 'f1,auc'; `UsageError` for a name that does not exist.

    >>> figure_names("f1, auc")
    ('f1', 'auc')
    """
    parts = text.split(",") if isinstance(text, str) else [str(part) for part in text]
    names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    unknown = [name for name in names if name not in FIGURES]
    if unknown or not names:
        raise UsageError(
            f"--metrics is a list of {', '.join(FIGURES)}; found {unknown[0] if unknown else ''!r}"
        )
    return names


def _check_figures(head: Head, names: Sequence[str]) -> None:
    needed = [name for name in names if FIGURES[name].needs == "probabilities"]
    if needed and not head.log_probabilities:
        raise UsageError(
            f"--metrics {needed[0]} needs probabilities; the scores of this {head.name} head are "
            "none: leave it out, or make some of them with afltool evaluate --counts and afltool "
            "calibrate"
        )


def _positive(names: Sequence[str], classes: Sequence[str], given: str | None) -> int | None:
    """The positive class for figures of these names: the given one, of two the second, said so.

    None where no figure is of one class, or where only means over classes are left. `UsageError`
    for a class that does not exist or that no figure is of, and where one has to be given.
    """
    figures = [name for name in names if FIGURES[name].one_class]
    if given is not None and not figures:
        theirs = ", ".join(name for name, one in FIGURES.items() if one.one_class)
        raise UsageError(f"--positive is for --metrics {theirs}; add one of these")
    if given is not None and given not in classes:
        more = f" … ({len(classes)} in all)" if len(classes) > SHOWN else ""
        raise UsageError(
            f"--positive is a class: {', '.join(classes[:SHOWN])}{more}; found {given!r}"
        )
    if given is not None:
        return list(classes).index(given)
    if figures and len(classes) == 2:
        log.info(
            "evaluate: the positive class is %s, the second of two; --positive %s takes the other",
            classes[1],
            classes[0],
        )
        return 1
    unclear = [name for name in figures if not FIGURES[name].mean]
    if unclear:
        raise UsageError(
            f"--metrics {unclear[0]} is for one class against the rest, and there are "
            f"{len(classes)} classes: name it with --positive CLASS, or ask for the mean over "
            f"classes, --metrics macro-{unclear[0]}"
        )
    return None


def _said_of(name: str, positive: str | None) -> dict[str, str]:
    """For JSON: the positive class that a figure is of, or that it is a mean over classes."""
    figure = FIGURES[name]
    if figure.one_class and positive is not None:
        return {"positive": positive}
    return {"average": "macro"} if figure.mean else {}


def _rounds_in(rows: Features, cache: Cache, path: Path) -> set[str]:
    """The rounds that a head file can be evaluated after: those that it scores one row with."""
    loaded = load_head(path, cache)
    check_fits(path, loaded.header, rows)
    return {loaded.phase_of(name) for name, _ in loaded.head.round_scores(rows.rows(0, 1))}


def _other(path: Path, rows: Features) -> Head:
    head, header = load_solved_head(path)
    check_fits(path, header, rows)
    return head


def _wrong(scored: Scored, rows: Features) -> list[dict[str, Any]]:
    """A record of each row that is wrong: with probabilities, or else with scores."""
    listed, classes = [], rows.classes
    for i in np.flatnonzero(~scored.right):
        named = rows.row_ids[i].decode(errors="replace"), classes[scored.y[i]]
        sure = float(scored.confidence[i]), float(scored.own[i])
        line = (*named, classes[scored.predicted[i]], *sure)
        listed.append(dict(zip(WRONG, line, strict=True)))
    return listed


@dataclass(frozen=True)
class _Block:
    """A block of rows: what is counted after each round, the classes predicted in the end, and the
    last scores if they are kept, with those of another head if there is one."""

    X: Rows
    y: I64
    predicted: I64
    counted: dict[str, Metrics]
    scored: list[Scored]


@dataclass
class _Pass:
    """One pass over the rows of a file."""

    file: HeadFile
    path: Path  # of the head
    rows: Features
    options: EvaluateOptions
    names: Sequence[str]  # of figures
    other: Head | None = None  # it is compared with
    counted: dict[str, Metrics] = field(default_factory=dict)  # of every round
    predicted: list[I64] = field(default_factory=list)
    apart: dict[str, Separability] = field(default_factory=dict)  # scatters, layer by layer
    parts: list[list[Scored]] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """What is counted and measured of the head, or after each of its rounds."""
        self.score()
        header, apart = self.file.header, self.apart.items()
        measured = [{"features": name, "width": one.width, **one.figures()} for name, one in apart]
        classes, y = self.rows.classes, self.rows.labels
        report = {
            **list(self.counted.values())[-1].as_dict(classes),
            "confusion": confusion_entry(y, np.concatenate(self.predicted), len(classes)),
            "head": {
                "path": str(self.path),
                "digest": header["digest"],
                "name": self.file.head.name,
            },
            "features": {"path": str(self.rows.path), "digest": self.rows.header["digest"]},
            **({"separability": measured} if self.options.separability else {}),
        }
        if self.options.each_round:
            report["rounds"] = rounds_of(self.file.rounds, accuracies(self.counted), measured)
        return report

    def scored(self) -> list[Scored]:
        """All rows, and those that the other head scored; none if counts were enough."""
        return [Scored.joined(one) for one in zip(*self.parts, strict=True)]

    def score(self) -> None:
        """Count and keep what is asked for, block by block."""
        if "auc" in self.names:  # all scores twice, and their order
            n = len(self.rows) * len(self.rows.classes)
            memory.need(32 * n, f"the AUC of {n:,} scores", "leave auc out, or give --counts")
        with progress.task("evaluate", len(self.rows), "rows") as task:
            room = self.file.head.room
            blocks = cut(self.rows.blocks(), len(self.rows.classes))
            for counted in cores.each(self._block, blocks, lambda b: room(len(b[1]))):
                progress.stop_point()
                for name, one in counted.counted.items():
                    self.counted[name] = self.counted[name] + one if name in self.counted else one
                if self.options.separability:
                    self._set_apart(counted.X, counted.y)
                self.predicted.append(counted.predicted)
                self.parts.append(counted.scored)
                task.advance(len(counted.X))

    def _block(self, given: tuple[int, Rows]) -> _Block:
        """The scores of a block of rows, and what is counted of them, in any thread."""
        (start, X), head, o = given, self.file.head, self.options
        y, S, counted = self.rows.labels[start : start + len(X)], None, {}
        for part, S in head.round_scores(X) if o.each_round else [(LAST, head.scores(X))]:
            counted[self.file.phase_of(part)], predicted = score_metrics(S, y)
        if S is None:
            raise not_solved(head, self.path)
        scored = []
        if self.names or o.against is not None or o.errors is not None:
            scored.append(Scored.of(S, reported_scores(head, S), y, "auc" in self.names))
        if self.other is not None:
            theirs = self.other.scores(X)
            scored.append(Scored.of(theirs, theirs, y, keep_scores=False))
        return _Block(X, y, predicted, counted, scored)

    def _set_apart(self, X: Rows, y: NDArray[np.int64]) -> None:
        """Add the features that the head makes of these rows to the scatters of their layers."""
        from ..math.metrics.separability import Separability

        for start in range(0, len(y), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            for of, phi in self.file.head.round_features(X[part]):
                name = self.file.phase_of(of)
                if name not in self.apart:
                    self.apart[name] = Separability(len(self.rows.classes), phi.shape[1])
                self.apart[name].add(phi, y[part])
