"""Stage `evaluate`: a solved head and features with labels → accuracies and other figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import memory
from ..errors import UsageError
from ..files.features import Features
from ..files.heads import HeadFile, check_fits, load_solved_head, not_solved
from ..files.tables import check_table, column_by_row, write_records
from ..heads.base import Classifier, Head
from ..heads.scoring import LABEL, SCORES, Scores, score
from ..math.metrics.counting import TOPS, confusion_entry
from ..math.metrics.figures import FIGURES, Scored, curves, figures_by_part, mcnemar, summary
from ..options.evaluation import Evaluate, EvaluateOptions
from ..progress import event, log
from ._direct import as_features
from .runner import Files, StageFunction

SHOWN = 20  # classes that a message names
WRONG = ["row", "true", "predicted", "score", "score_of_true"]  # of a row that is wrong


@StageFunction
def evaluate(o: Evaluate, files: Files) -> dict[str, Any]:
    """Top-1 and top-5 (fractions), n, per-class accuracy and the confusion matrix, as a dict.

    ``top5`` is there from six classes on, ``per_class_intervals`` (Wilson, 95 %) without ``group``.
    From 1,000 classes on ``confusion`` has the cells that are not 0. ``each_round`` adds
    ``rounds``, with the accuracies after each round that this file holds; the head need not be
    solved then. ``separability``, ``metrics``, ``by`` and ``against`` add entries of their names;
    that of a figure names its ``positive`` class, or has ``average`` 'macro', a mean over classes.
    """
    o = as_features(o, o.head)
    names = _figures_asked(o)
    if o.errors is not None:
        check_table(o.errors)
    file = files.head(o.head)
    rows = _rows_for(file, o, files, names)
    positive = _positive(names, rows.classes, o.positive)
    other = None if o.against is None else load_solved_head(o.against)
    if other is not None:
        check_fits(str(o.against), other.header, rows)
    parts, groups = (
        None if column is None else column_by_row(option, column, rows.row_ids)
        for option, column in (("--group-by", o.group_by), ("--resample-by", o.resample_by))
    )
    scores = _scores(file.head, rows, o, names, other.head if other else None)
    report = _report(o, file, rows, scores)
    if scores.rated and names:
        rated = replace(scores.rated[0], positive=positive)
        report |= _figures(o, names, rated, rows.classes, groups)
        report |= {"by": figures_by_part(rated, names, parts)} if parts is not None else {}
    if o.against is not None:
        ours, theirs = scores.rated
        differ = int((ours.predicted != theirs.predicted).sum())
        compared = {"predicted_differently": differ, **mcnemar(ours.right, theirs.right)}
        report["against"] = {"path": str(o.against), **compared}
    if o.errors is not None:
        write_records(_wrong(scores.rated[0], rows), o.errors, o.overwrite, WRONG)
    figures = {k: report[k] for k in (*TOPS, "n") if k in report}
    event("metrics", head=o.head, features=o.features, figures=figures)
    return report


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


def _figures_asked(o: EvaluateOptions) -> tuple[str, ...]:
    """The figures asked for; those of parts are accuracies where none is named."""
    if o.metrics is not None:
        return figure_names(o.metrics)
    return ("accuracy",) if o.group_by is not None or o.resample_by is not None else ()


def _rows_for(file: HeadFile, o: Evaluate, files: Files, names: Sequence[str]) -> Features:
    """The features, if the head can score them, and has what the figures need."""
    head, header = file
    if not isinstance(head, Classifier):
        raise UsageError(f"{o.head} is a {head.name} file; expected a head that scores rows")
    if head.phase() is not None and not (o.each_round and header["classes"]):
        raise not_solved(head, o.head)
    needed = [name for name in names if FIGURES[name].needs == "probabilities"]
    if needed and not head.log_probabilities:
        raise UsageError(
            f"--metrics {needed[0]} needs probabilities, and the scores of this {head.name} head "
            "are none: leave it out, or see afltool calibrate"
        )
    rows = files.features(o.features, again=not head.one_round)
    check_fits(o.head, header, rows)
    if head.phase() is not None and not [*head.round_scores(rows.rows(0, 1))]:
        raise not_solved(head, o.head)
    return rows


def _positive(names: Sequence[str], classes: Sequence[str], given: str | None) -> int | None:
    """The positive class for figures of these names: the given one, of two the second, said so.

    None where no figure is of one class, or where only means over classes are left.
    """
    figures = [name for name in names if FIGURES[name].one_class]
    if given is not None:
        if not figures:
            theirs = ", ".join(name for name, one in FIGURES.items() if one.one_class)
            raise UsageError(f"--positive is for --metrics {theirs}; add one of these")
        if given not in classes:
            raise UsageError(
                f"--positive is a class: {', '.join(classes[:SHOWN])} ({len(classes)} in all); "
                f"found {given!r}"
            )
        return list(classes).index(given)
    if figures and len(classes) == 2:
        log.info("evaluate: the positive class is %s, the second of two (--positive)", classes[1])
        return 1
    if unclear := [name for name in figures if not FIGURES[name].mean]:
        raise UsageError(
            f"--metrics {unclear[0]} is for one class against the rest, and there are "
            f"{len(classes)} classes: name it with --positive CLASS, or ask for the mean over "
            f"classes, --metrics macro-{unclear[0]}"
        )
    return None


def _scores(
    head: Head, rows: Features, o: EvaluateOptions, names: Sequence[str], other: Head | None
) -> Scores:
    """What the options ask for of all rows."""
    classes = len(rows.classes)
    keep = LABEL if names or o.against is not None or o.errors is not None else None
    if "auc" in names:  # all scores twice, and their order
        keep, n = SCORES, len(rows) * classes
        memory.require_memory(32 * n, f"the AUC of {n:,} scores", "leave auc out, or give --counts")
    how: dict[str, Any] = {"rounds": o.each_round, "apart": o.separability}
    return score(head, rows.blocks(), rows.labels, classes, keep=keep, other=other, **how)


def _report(o: Evaluate, file: HeadFile, rows: Features, scores: Scores) -> dict[str, Any]:
    """What is counted and measured of the head, or after each of its rounds."""
    counted = {file.phase_of(phase): one for phase, one in scores.counted.items()}
    apart = {file.phase_of(phase): one for phase, one in scores.apart.items()}
    of_layers = {name: one.figures() for name, one in apart.items()}
    *_, last = counted
    report = {
        **counted[last].as_dict(rows.classes),
        # The rows of a group are not independent: its intervals would be too narrow.
        **({} if o.resample_by else {"per_class_intervals": counted[last].intervals(rows.classes)}),
        "confusion": confusion_entry(rows.labels, scores.predicted, len(rows.classes)),
        "head": {"path": str(o.head), "digest": file.header["digest"], "name": file.head.name},
        "features": {"path": str(rows.path), "digest": rows.header["digest"]},
    }
    if o.separability:
        report["separability"] = [
            {"features": name, "width": apart[name].width, **one} for name, one in of_layers.items()
        ]
    if o.each_round:
        more: dict[str, dict[str, Any]] = {name: dict(one) for name, one in of_layers.items()}
        for name, one in counted.items():
            more[name] = {**one.tops, "kept": name == last, **more.get(name, {})}
        report["rounds"] = file.rounds_with(more)
    return report


def _figures(
    o: EvaluateOptions,
    names: Sequence[str],
    scored: Scored,
    classes: Sequence[str],
    groups: list[str] | None,
) -> dict[str, Any]:
    """The figures asked for, each with its positive class or as a mean over classes; curves."""
    at = None if groups is None else np.unique(groups, return_inverse=True)[1]
    figures: dict[str, dict[str, Any]] = {**summary(scored, names, o.bootstrap_samples, o.seed, at)}
    for name, one in figures.items():
        if FIGURES[name].one_class and scored.positive is not None:
            one["positive"] = classes[scored.positive]
        elif FIGURES[name].mean:
            one["average"] = "macro"
    return {"metrics": figures, **curves(scored, names, classes)}


def _wrong(scored: Scored, rows: Features) -> list[dict[str, Any]]:
    """A record of each row that is wrong: with probabilities, or else with scores."""
    listed, classes = [], rows.classes
    for i in np.flatnonzero(~scored.right):
        named = rows.row_ids[i].decode(errors="replace"), classes[scored.y[i]]
        sure = float(scored.confidence[i]), float(scored.own[i])
        line = (*named, classes[scored.predicted[i]], *sure)
        listed.append(dict(zip(WRONG, line, strict=True)))
    return listed
