"""Tables that are printed for people.

A round is one entry of ``phases`` in a head's report (`heads.base`). It may have accuracies, and
``kept`` if the final head is the one of that round; figures that a head does not report are left
out.
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
from .terminal import add_row, cell, on_stderr, on_stdout, print_whole, print_words

Round = dict[str, Any]
ROWS = 25  # of a table of rounds that a person sees; CSV and JSON have them all
MOST_CLASSES = 200  # that are shown; --json has all of them
MOST_PARTS = 30  # sites or groups that are shown; --json has all of them


def print_metrics(metrics: dict[str, Any]) -> None:
    """Accuracies of an evaluation, per class, and for few classes the confusion matrix."""
    console = on_stdout()
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
        console.print(
            "rows predicted differently {predicted_differently}; right by this head alone "
            "{only_this}, by the other alone {only_other}; McNemar's p-value {p_value:.3g}".format(
                **metrics["against"]
            ),
            highlight=False,
        )
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
        for i, (name, share) in enumerate(shares[:MOST_CLASSES])
    ]
    left = f"{MOST_CLASSES} of {len(shares)} classes; --json has them all"
    title = "true class (row) predicted as (column)" if few else None
    headings = ["class", "accuracy", *["95 %"] * bool(ends)]
    headings += map(str, range(len(shares) if few else 0))
    return _table(title, headings, rows, left if len(shares) > MOST_CLASSES else None)


def _parts(parts: dict[str, dict[str, Any]], figures: dict[str, Any]) -> Table:
    """A row for each part, the first ones where there are very many."""
    names = [k for k in next(iter(parts.values()), {}) if k != "n"]
    rows = [
        (part, _figure(one["n"], "{}"), *(_figure(one[k]) for k in names))
        for part, one in list(parts.items())[:MOST_PARTS]
    ]
    left = f"{MOST_PARTS} of {len(parts)} parts; --json has them all"
    headings = ("part", "rows", *(figure_label(k, figures[k]) for k in names))
    return _table("by part", headings, rows, left if len(parts) > MOST_PARTS else None)


def _table(
    title: str | None,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    note: str | None = None,
) -> Table:
    """Rows of plain texts below headings: what they are of to the left, figures to the right."""
    table = Table(title=title, caption=note)
    for i, name in enumerate(headings):
        table.add_column(name, justify="right" if i else "left")
    for row in rows:
        add_row(table, *row)
    return table


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}"


def _figure(value: float | None, form: str = "{:.4f}") -> str:
    return "–" if value is None else form.format(value)


def say_solution(path: Path) -> None:
    """One paragraph on stderr about a solved head: rank, condition, ridge, degrees of freedom."""
    r = read_header(path, "head")["report"]
    if "phases" in r:
        last = r["phases"][-1]
        mse = last.get("training_mse")
        error = "" if mse is None else f", training error {mse:.6g} per row"
        log.info(
            "solve: %s in %.2f s%s; a client sent at most %s and gets %s",
            last["phase"], last["solve_seconds"], error,
            byte_text(last["upload_bytes"]), byte_text(last["download_bytes"]),
        )  # fmt: skip
    if "layers_by" in r:
        log.info("solve: %d layers are kept, chosen by %s", r["layers"], r["layers_by"])
    if "ridge" not in r or "features" not in r:
        return
    condition = r.get("condition")
    log.info(
        "solve: %d rows, %s of %d, condition number %s, ridge %.6g (%s), "
        "%.1f effective degrees of freedom%s%s",
        r["rows"], f"rank {r['rank']}" if "rank" in r else "unknown rank", r["features"],
        "unknown" if "rank" not in r else "infinite" if condition is None else f"{condition:.3g}",
        r["ridge"], r["ridge_by"], r["degrees_of_freedom"],
        "; minimum-norm solution" if r.get("minimum_norm") else "",
        f"; clients' γ left in: {r['kept_gamma']:g}" if "kept_gamma" in r else "",
    )  # fmt: skip
    for point in r.get("ridge_path", []):
        facts = ", ".join(f"{k} {v:.6g}" for k, v in point.items() if v is not None)
        log.debug("solve: %s%s", facts, " ← chosen" if point["ridge"] == r["ridge"] else "")


EXCHANGES = {  # by the `exchange` of a summary
    "full": "all sums of each round",
    "incremental": "after the first round what changes (--incremental)",
}


def print_summary(summary: dict[str, Any]) -> None:
    """What a run found, on stderr: accuracy, bytes a client sends, seconds per stage, rounds."""
    sent, by_stage = summary["bytes_per_client"], dict[str, tuple[float, str]]()
    for one in summary["stages"]:  # those of several rounds together, with the last file
        seconds, _ = by_stage.get(one["stage"], (0.0, ""))
        by_stage[one["stage"]] = seconds + one["seconds"], one["file"]
    text = describe_upload(sent[0]) if len(sent) == 1 else EXCHANGES[summary["exchange"]]
    facts = [
        ("top-1 accuracy", f"{summary['top1']:.2%} of {summary['n']} test rows"),
        ("clients", summary["clients"]),
        ("a client sends", text),
        *((name, f"{seconds:.2f} s   {file}") for name, (seconds, file) in by_stage.items()),
        ("digest of the total", summary["total_digest"]),
        ("the solved head", FINAL_HEAD),
    ]
    tell_facts(facts, summary["rounds"])


def tell_facts(facts: Iterable[tuple[str, object]], rounds: Sequence[dict[str, Any]]) -> None:
    """Facts on stderr, and a table of the rounds if there are several."""
    print_words(on_stderr(), facts, bold=True)
    if len(rounds) > 1:
        print_whole(on_stderr(), rounds_table(rounds))


def print_status(facts: dict[str, Any]) -> None:
    """The parts of a run, its jobs if there are any, and the command that continues it."""
    rows = [(part["name"], part["state"], part["why"]) for part in facts["parts"]]
    for work in facts["jobs"]:
        job = "" if work["job"] is None else f"job {work['job']}"
        tasks = f"{work['tasks']} tasks " if work["tasks"] else ""
        text = f": {work['said']} ({work['log']})" if work["said"] else ""
        rows.append((work["name"], work["state"], f"{tasks}{job}{text}"))
    print_parts(rows, f"{facts['state']}: {cell(facts['folder'])}", facts["continue"])


def print_parts(rows: Iterable[Sequence[object]], end: str, command: str) -> None:
    """What is done and what is not, a line in all, and the command that continues."""
    console = on_stdout()
    print_words(console, rows)
    console.print(end)
    if command:
        console.print("to continue:")
        console.print(cell(command), soft_wrap=True)


def describe_upload(sent: dict[str, Any]) -> str:
    """Bytes that a client sends in one round, in words."""
    if "mean_file" in sent:
        return f"{byte_text(sent['mean_file'])} (mean of {sent['files']} files)"
    return f"at most {byte_text(sent['arrays_at_most'])}"


def print_nodes(rows: Iterable[dict[str, Any]]) -> None:
    """One line a place of `--node`, in the order in which they run; `stages` takes the marked."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "layer", "width", "output", "place", "in stages"):
        table.add_column(name, justify="right" if name == "width" else "left")
    for row in rows:
        taken = "–" if row["stages"] is None else f"as {row['stages']}"
        add_row(table, row["name"], row["layer"], row["width"], row["output"], row["place"], taken)
    print_whole(on_stdout(), table)


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.3g}" if value < 1e9 else f"{value / 1e6:,.0f}"


_seconds, _share, _number = "{:.2f}".format, "{:.2%}".format, "{:.4g}".format
# Title and format of the figures that fit on a terminal; files have all figures.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "phase": ("round", str),
    **{name: (name, str) for name in ("rows", "clients")},
    "ridge": ("ridge", _number),
    "training_mse": ("training\nerror", _number),
    "validation_mse": ("held-out\nerror", _number),
    "reconstruction_mse": ("error\nof Φ_0", _number),
    "loss": ("loss", _number),
    "validation_loss": ("held-out\nloss", _number),
    "train_top1": ("training\ntop-1", _share),
    "top1": ("top-1", _share),
    **{name: (name.upper(), _number) for name in MEASURES},
    "gather_seconds": ("gather\ns", _seconds),
    "solve_seconds": ("solve\ns", _seconds),
    "file_bytes": ("up\nMB", _megabytes),
    "upload_bytes": ("up\nMB", _megabytes),
    "download_bytes": ("down\nMB", _megabytes),
}
CONSTANT = ("rows", "clients", "ridge")  # shown only where they change
SUMS = ("gather_seconds", "solve_seconds", "file_bytes", "upload_bytes", "download_bytes")


def rounds_table(rounds: Sequence[Round]) -> Table:
    """One line for each round (of very many for some of them), and the sums over all."""
    title = "rounds (error: squared error per row; bytes: of one client)"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_footer=len(rounds) > 1)
    columns = [name for name in COLUMNS if _worth_a_column(name, rounds)]
    if "file_bytes" in columns:  # what was measured, not its bound
        columns.remove("upload_bytes")
    for name in columns:
        total = COLUMNS[name][1](sum(one.get(name) or 0 for one in rounds)) if name in SUMS else ""
        side: Literal["left", "right"] = "left" if name == "phase" else "right"
        foot = "all" if name == "phase" else total
        table.add_column(COLUMNS[name][0], foot, justify=side, no_wrap=True)
    shown = _spread(rounds)
    chosen = [bool(one.get("kept")) and one is not rounds[-1] for one in shown]
    for one, kept in zip(shown, chosen, strict=True):
        first, *rest = ["–" if one.get(k) is None else COLUMNS[k][1](one[k]) for k in columns]
        add_row(table, first + " ←" * kept, *rest)
    notes = [f"{len(shown)} of {len(rounds)} rounds"] * (len(shown) < len(rounds))
    notes += ["←: the round whose head is kept"] * any(chosen)
    table.caption = "; ".join(notes) or None
    return table


def _worth_a_column(name: str, rounds: Sequence[Round]) -> bool:
    values = {one.get(name) for one in rounds} - {None}
    return len(values) > 1 if name in CONSTANT else bool(values)


def _spread(rounds: Sequence[Round]) -> list[Round]:
    """At most `ROWS` rounds, evenly spread, with the last one.

    Of many rounds only those with a solved head are shown, if there are any.
    """
    if len(rounds) <= ROWS:
        return list(rounds)
    telling = [one for one in rounds if "training_mse" in one or "top1" in one] or list(rounds)
    at = np.unique(np.linspace(0, len(telling) - 1, min(ROWS, len(telling))).round().astype(int))
    return [telling[i] for i in at]
