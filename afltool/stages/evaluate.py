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
from ..files.hdf5 import recipe
from ..files.heads import HeadFile, check_fits, load_head, load_solved_head, not_solved
from ..files.tables import check_table, column_by_row, write_records
from ..heads.base import LAST, Head
from ..heads.checks import reported_scores
from ..math.gram import Rows
from ..math.metrics.counting import TOPS, Metrics, confusion_entry, score_metrics
from ..math.metrics.figures import FIGURES, Scored, by_part, curves, cut, summary
from ..options.common import on_cores
from ..options.evaluation import Evaluate, EvaluateOptions
from ..progress import event, log
from ..values.arrays import I64
from ..values.names import Phase
from ._rounds import accuracies, after_each_round, rounds_of, with_training
from .runner import Files

if TYPE_CHECKING:
    from ..math.metrics.separability import Separability

AT_ONCE = 256  # rows whose features are made together: those of codes are dense here
SHOWN = 20  # classes that a message names
PLAIN = EvaluateOptions()
WRONG = ["row", "true", "predicted", "score", "score_of_true"]  # of a row that is wrong


@on_cores
def evaluate(o: Evaluate) -> dict[str, Any]:
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
    with Files().reading() as files:
        return figures_of(o, files)


def figures_of(o: Evaluate, files: Files) -> dict[str, Any]:
    """`evaluate`, of files that a run may have in memory."""
    names = _figures_asked(o)
    if o.errors is not None:
        check_table(o.errors)
    file = files.head(o.head)
    solved, header = file
    if solved.phase() is not None and not (o.each_round and header["classes"]):
        raise not_solved(solved, o.head)
    _check_figures(solved, names)
    rows = files.features(o.features, again=not solved.options.one_round())
    check_fits(o.head, header, rows)
    if solved.phase() is not None and not [*solved.round_scores(rows.rows(0, 1))]:
        raise not_solved(solved, o.head)
    positive = _positive(names, rows.classes, o.positive)
    other = None if o.against is None else _other(o.against, rows)
    parts = None if o.by is None else column_by_row("--by", o.by, rows.row_ids)
    groups = None if o.group is None else column_by_row("--group", o.group, rows.row_ids)
    scores = score(solved, rows, o, other)
    report = _report(o, file, rows, scores)
    if scored := [Scored.joined(one) for one in zip(*scores.rated, strict=True)]:
        rated = replace(scored[0], positive=positive)
        report |= _figures(o, names, rated, rows.classes, parts, groups)
    if o.against is not None:
        report["against"] = {"path": str(o.against), **_compared(*scored)}
    if o.errors is not None:
        write_records(_wrong(scored[0], rows), o.errors, o.overwrite, WRONG)
    figures = {k: report[k] for k in (*TOPS, "n") if k in report}
    event("metrics", head=o.head, features=o.features, figures=figures)
    return report


def evaluate_run(o: EvaluateOptions, inputs: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """`evaluate` of the last head of a run, whose earlier heads and training rows are there, too.

    ``inputs``: ``head`` and ``features``; ``earlier``: files of the rounds before, in any order,
    for the rounds that the head does not hold; ``train``: training features, which add ``train``
    (top-1, top-5, n) and ``train_top1`` of rounds.
    """

    def measured(features: Path) -> dict[str, Any]:
        def one(head: Path) -> dict[str, Any]:
            apart = o.separability and head == inputs["head"]
            asked = Evaluate(head, features, each_round=o.each_round, separability=apart)
            return figures_of(asked, files)

        if not inputs.get("earlier"):
            return one(inputs["head"])
        rows = files.features(features, again=True)
        headers = {p: files.header(p, "head") for p in (*inputs["earlier"], inputs["head"])}
        heads = {path: one["report"].get("phases", []) for path, one in headers.items()}
        return after_each_round(heads, one, partial(_rounds_in, rows))

    found = measured(inputs["features"])
    return with_training(found, measured(inputs["train"])) if "train" in inputs else found


def recipe_of(inputs: Mapping[str, Any], options: EvaluateOptions, opened: Files) -> dict[str, Any]:
    """What the figures depend on: every option that is given, heads and rows by their digests."""
    parts: dict[str, Any] = {}
    for role, given in inputs.items():
        files = given if isinstance(given, tuple) else (given,)
        kind = "features" if role in ("features", "train") else "head"
        headers = [opened.header(file, kind) for file in files]
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
        return np.concatenate(
            score(solved.head, rows).predicted
        ) == rows.labels, rows.row_ids.copy()


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


def _rounds_in(rows: Features, path: Path) -> set[str]:
    """The rounds that a head file can be evaluated after: those that it scores one row with."""
    loaded = load_head(path)
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


@dataclass
class Scores:
    """What a pass over rows finds of a head.

    ``counted``: after each of its rounds, by phase, or `LAST`; ``predicted``: the classes in the
    end; ``rated``: rows with their scores, if figures need them, and those of another head;
    ``apart``: scatters of the features of each layer.
    """

    counted: dict[Phase, Metrics] = field(default_factory=dict)
    predicted: list[I64] = field(default_factory=list)
    rated: list[list[Scored]] = field(default_factory=list)
    apart: dict[Phase, Separability] = field(default_factory=dict)


def score(
    head: Head, rows: Features, o: EvaluateOptions = PLAIN, other: Head | None = None
) -> Scores:
    """Score all rows, block by block, and count and keep what the options ask for."""
    names, classes = _figures_asked(o), len(rows.classes)
    rates, keeps = bool(names) or o.against is not None or o.errors is not None, "auc" in names
    if keeps:  # all scores twice, and their order
        n = len(rows) * classes
        memory.need(32 * n, f"the AUC of {n:,} scores", "leave auc out, or give --counts")

    def of_block(given: tuple[int, Rows]) -> tuple[Rows, I64, Scores]:
        start, X = given
        y, S, found = rows.labels[start : start + len(X)], np.empty((0, classes)), Scores()
        for phase, S in head.round_scores(X) if o.each_round else [(LAST, head.scores(X))]:
            found.counted[phase], predicted = score_metrics(S, y)
            found.predicted = [predicted]
        ours = [Scored.of(S, reported_scores(head, S), y, keeps)] if rates else []
        theirs = None if other is None else other.scores(X)
        beside = [] if theirs is None else [Scored.of(theirs, theirs, y, keep_scores=False)]
        found.rated = [[*ours, *beside]]
        return X, y, found

    scores, blocks = Scores(), cut(rows.blocks(), classes)
    with progress.task("evaluate", len(rows), "rows") as task:
        for X, y, found in cores.each(of_block, blocks, lambda b: head.room(len(b[1]))):
            progress.stop_point()
            for phase, one in found.counted.items():
                scores.counted[phase] = (
                    scores.counted[phase] + one if phase in scores.counted else one
                )
            scores.predicted += found.predicted
            scores.rated += found.rated
            if o.separability:
                _set_apart(scores.apart, head, X, y, classes)
            task.advance(len(X))
    return scores


def _set_apart(
    apart: dict[Phase, Separability], head: Head, X: Rows, y: NDArray[np.int64], classes: int
) -> None:
    """Add the features that the head makes of these rows to the scatters of their layers."""
    from ..math.metrics.separability import Separability

    for start in range(0, len(y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        for phase, phi in head.round_features(X[part]):
            if phase not in apart:
                apart[phase] = Separability(classes, phi.shape[1])
            apart[phase].add(phi, y[part])


def _report(o: Evaluate, file: HeadFile, rows: Features, scores: Scores) -> dict[str, Any]:
    """What is counted and measured of the head, or after each of its rounds."""
    counted = {file.phase_of(phase): one for phase, one in scores.counted.items()}
    apart = {file.phase_of(phase): one for phase, one in scores.apart.items()}
    measured = [
        {"features": name, "width": one.width, **one.figures()} for name, one in apart.items()
    ]
    predicted = np.concatenate(scores.predicted)
    report = {
        **list(counted.values())[-1].as_dict(rows.classes),
        "confusion": confusion_entry(rows.labels, predicted, len(rows.classes)),
        "head": {"path": str(o.head), "digest": file.header["digest"], "name": file.head.name},
        "features": {"path": str(rows.path), "digest": rows.header["digest"]},
        **({"separability": measured} if o.separability else {}),
    }
    if o.each_round:
        report["rounds"] = rounds_of(file.rounds, accuracies(counted), measured)
    return report
