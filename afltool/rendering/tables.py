"""Tables that are printed for people.

A round is one entry of ``phases`` in a head's report, perhaps with accuracies, and ``kept`` if the
final head is the one of that round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..files.evaluations import figure_label
from ..files.hdf5 import read_header
from ..files.schema import FINAL_HEAD
from ..progress import log
from ..values.names import MEASURES
from ..values.text import byte_text
from .terminal import add_row, cell, print_whole, print_words, stderr_console, stdout_console

Round = dict[str, Any]
ROWS = 25  # of a table of rounds that a person sees; CSV and JSON have them all
MOST_ROWS = 200  # of a table of classes or parts


def print_metrics(metrics: dict[str, Any]) -> None:
    """Accuracies of an evaluation, per class, and for few classes the confusion matrix."""
    console = stdout_console()
    top5 = f"top-5 {metrics['top5']:.2%}   " if "top5" in metrics else ""
    console.print(f"top-1 [bold]{metrics['top1']:.2%}[/bold]   {top5}rows {metrics['n']}")
    print_whole(console, _classes(metrics))
    figures = metrics.get("metrics", {})
    if figures:
        ends = [end for end in ("low", "high") if any(end in one for one in figures.values())]
        names = ("value", *ends)
        rows = [
            (figure_label(k, one), *(_figure(one.get(name)) for name in names))
            for k, one in figures.items()
        ]
        title = "figures with their 95 % intervals" if ends else "figures"
        console.print(_table(title, ("figure", *names), rows))
    if "separability" in metrics:
        rows = [
            (one["features"], one["width"], *(_figure(one[k], "{:.4g}") for k in MEASURES))
            for one in metrics["separability"]
        ]
        headings = ("features", "width", *map(str.upper, MEASURES))
        console.print(_table("how far apart the classes lie (lower is better)", headings, rows))
    if "by" in metrics:
        console.print(_parts(metrics["by"], figures))
    if "against" in metrics:
        text = "rows predicted differently {predicted_differently}; right by this head alone "
        text += "{only_this}, by the other alone {only_other}; McNemar's p-value {p_value:.3g}"
        console.print(text.format(**metrics["against"]), highlight=False)
    if "rounds" in metrics:
        print_whole(console, rounds_table(metrics["rounds"]))


def _classes(metrics: dict[str, Any]) -> Table:
    shares, ends = list(metrics["per_class"].items()), metrics.get("per_class_intervals", {})
    few = len(shares) <= 12
    rows = [
        (
            f"{i} {name}" if str(i) != name else name,
            _figure(share, "{:.2%}"),
            *([_interval(*ends[name])] if ends else ()),
            *(metrics["confusion"][i] if few else ()),
        )
        for i, (name, share) in enumerate(shares)
    ]
    title = "true class (row) predicted as (column)" if few else None
    headings = ["class", "accuracy", *["95 %"] * bool(ends)]
    return _table(title, [*headings, *map(str, range(len(shares) if few else 0))], rows)


def _parts(parts: dict[str, dict[str, Any]], figures: dict[str, Any]) -> Table:
    names = [k for k in next(iter(parts.values()), {}) if k != "n"]
    rows = [
        (part, _figure(one["n"], "{}"), *(_figure(one[k]) for k in names))
        for part, one in parts.items()
    ]
    return _table("by part", ("part", "rows", *(figure_label(k, figures[k]) for k in names)), rows)


def _table(title: str | None, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """At most `MOST_ROWS` rows: what they are of to the left, figures to the right."""
    left = f"{MOST_ROWS} of {len(rows)}; --json has them all" if len(rows) > MOST_ROWS else None
    table = Table(title=title, caption=left)
    for i, name in enumerate(headings):
        table.add_column(name, justify="right" if i else "left")
    for row in rows[:MOST_ROWS]:
        add_row(table, *row)
    return table


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}"


def _figure(value: float | None, form: str = "{:.4f}") -> str:
    return "–" if value is None else form.format(value)


def print_solution(path: Path) -> None:
    """A line on stderr about a solved head: rank, condition, ridge, degrees of freedom."""
    r = read_header(path, "head")["report"]
    if "phases" in r:
        log.info("solve: %s in %.2f s", r["phases"][-1]["phase"], r["phases"][-1]["solve_seconds"])
    if "layers_by" in r:
        log.info("solve: %d layers are kept, chosen by %s", r["layers"], r["layers_by"])
    if "ridge" not in r or "features" not in r:
        return
    rank, condition = r.get("rank", "unknown"), r.get("condition")
    log.info(
        "solve: %d rows, rank %s of %d, condition number %s, ridge %.6g (%s), "
        "%.1f effective degrees of freedom%s%s",
        r["rows"], rank, r["features"],
        "unknown" if "rank" not in r else "infinite" if condition is None else f"{condition:.3g}",
        r["ridge"], r["ridge_by"], r["degrees_of_freedom"],
        "; minimum-norm solution" if r.get("minimum_norm") else "",
        f"; clients' γ left in: {r['kept_gamma']:g}" if "kept_gamma" in r else "",
    )  # fmt: skip


def print_summary(summary: dict[str, Any]) -> None:
    """What a run found, on stderr: accuracy, bytes a client sends, seconds per stage, rounds."""
    sent, seconds = summary["bytes_per_client"], dict[str, float]()
    for one in summary["stages"]:  # those of several rounds together
        seconds[one["stage"]] = seconds.get(one["stage"], 0.0) + one["seconds"]
    text = describe_upload(sent[0])
    if len(sent) > 1:
        text = f"{byte_text(summary['upload_bytes'])} at most, {summary['exchange']} sums"
    facts = [
        ("top-1 accuracy", f"{summary['top1']:.2%} of {summary['n']} test rows"),
        ("clients", summary["clients"]),
        ("a client sends", text),
        *((name, f"{number:.2f} s") for name, number in seconds.items()),
        ("digest of the total", summary["total_digest"]),
        ("the solved head", FINAL_HEAD),
    ]
    print_facts(facts, summary["rounds"])


def print_facts(facts: Iterable[tuple[str, object]], rounds: Sequence[dict[str, Any]]) -> None:
    print_words(stderr_console(), facts, bold=True)
    if len(rounds) > 1:
        print_whole(stderr_console(), rounds_table(rounds))


def print_status(facts: dict[str, Any]) -> None:
    rows = [(part["name"], part["state"], part["why"]) for part in facts["parts"]]
    for work in facts["jobs"]:
        job = "" if work["job"] is None else f"job {work['job']}"
        tasks = f"{work['tasks']} tasks " if work["tasks"] else ""
        text = f": {work['said']} ({work['log']})" if work["said"] else ""
        rows.append((work["name"], work["state"], f"{tasks}{job}{text}"))
    print_parts(rows, f"{facts['state']}: {cell(facts['folder'])}", facts["continue"])


def print_parts(rows: Iterable[Sequence[object]], end: str, command: str) -> None:
    """What is done and what is not, a line in all, and the command that continues."""
    console = stdout_console()
    print_words(console, rows)
    console.print(end)
    if command:
        console.print("to continue:")
        console.print(cell(command), soft_wrap=True)


def describe_upload(sent: dict[str, Any]) -> str:
    if "mean_file" in sent:
        return f"{byte_text(sent['mean_file'])} (mean of {sent['files']} files)"
    return f"at most {byte_text(sent['arrays_at_most'])}"


_seconds, _share, _number = "{:.2f}".format, "{:.2%}".format, "{:.4g}".format
#: Title and format of the figures that fit on a terminal; files have all figures.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "phase": ("round", str),
    **{name: (name, str) for name in ("rows", "clients")},
    "ridge": ("ridge", _number),
    "training_mse": ("training\nerror", _number),
    "validation_mse": ("held-out\nerror", _number),
    "loss": ("loss", _number),
    "validation_loss": ("held-out\nloss", _number),
    "train_top1": ("training\ntop-1", _share),
    "top1": ("top-1", _share),
    **{name: (name.upper(), _number) for name in MEASURES},
    "gather_seconds": ("gather\ns", _seconds),
    "solve_seconds": ("solve\ns", _seconds),
    "upload_bytes": ("up\nMB", lambda value: f"{value / 1e6:.4g}"),
    "download_bytes": ("down\nMB", lambda value: f"{value / 1e6:.4g}"),
}
SUMS = ("gather_seconds", "solve_seconds", "upload_bytes", "download_bytes")


def rounds_table(rounds: Sequence[Round]) -> Table:
    """One line for each round (of very many for some of them), and the sums over all."""
    title = "rounds (error: squared error per row; bytes: of one client)"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_footer=len(rounds) > 1)
    columns = [name for name in COLUMNS if _worth_a_column(name, rounds)]
    for name in columns:
        total = COLUMNS[name][1](sum(one.get(name) or 0 for one in rounds)) if name in SUMS else ""
        side: Literal["left", "right"] = "left" if name == "phase" else "right"
        foot = "all" if name == "phase" else total
        table.add_column(COLUMNS[name][0], foot, justify=side, no_wrap=True)
    at = np.linspace(0, len(rounds) - 1, min(ROWS, len(rounds))).round().astype(int)
    shown = [rounds[i] for i in at]
    chosen = [bool(one.get("kept")) and one is not rounds[-1] for one in shown]
    for one, kept in zip(shown, chosen, strict=True):
        first, *rest = ["–" if one.get(k) is None else COLUMNS[k][1](one[k]) for k in columns]
        add_row(table, first + " ←" * kept, *rest)
    notes = [f"{len(shown)} of {len(rounds)} rounds"] * (len(shown) < len(rounds))
    notes += ["←: the round whose head is kept"] * any(chosen)
    table.caption = "; ".join(notes) or None
    return table


def _worth_a_column(name: str, rounds: Sequence[Round]) -> bool:
    """Whether some round has it; what may be the same in every round is shown where it changes."""
    values = {one.get(name) for one in rounds} - {None}
    return len(values) > 1 if name in ("rows", "clients", "ridge") else bool(values)
