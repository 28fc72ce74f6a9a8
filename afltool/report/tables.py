"""Tables and JSON for people and programs; pandas writes the tables that leave as files."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import InputError
from .rounds import rounds_table

log = logging.getLogger("afltool")
PATH_COLUMNS = ("ridge", "gcv", "validation_mse", "training_mse", "degrees_of_freedom")
SHOWN = 12  # entries of a long list that a person sees; --json has them all


def print_facts(facts: dict[str, Any]) -> None:
    """A two-column table of nested facts on stdout, and one of the rounds where there are some."""
    rounds = facts.get("report", {}).get("phases", [])
    if rounds:
        report = {k: v for k, v in facts["report"].items() if k != "phases"}
        facts = {**facts, "report": report}
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(facts):
        table.add_row(key, value)
    Console().print(table)
    if rounds:
        Console().print(rounds_table(rounds))


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, dict) and entry:
            rows += _flat(entry, name + ".")
        else:
            rows.append((name.replace("_", " "), _text(entry)))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(_text(v) for v in value[:SHOWN])
        return shown + (f", … ({len(value)} in all)" if len(value) > SHOWN else "")
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value in (None, "", {}) else escape(str(value))


def print_metrics(found: dict[str, Any]) -> None:
    """Accuracies of an evaluation, per class, and for few classes the confusion matrix."""
    console = Console()
    console.print(
        f"top-1 [bold]{found['top1']:.2%}[/bold]   top-5 {found['top5']:.2%}   rows {found['n']}",
        highlight=False,
    )
    classes = list(found["per_class"])
    few = len(classes) <= 12
    table = Table(title="true class (row) predicted as (column)" if few else None)
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for i in range(len(classes) if few else 0):
        table.add_column(str(i), justify="right")
    for i, name in enumerate(classes):
        share = found["per_class"][name]
        counts = [str(c) for c in found["confusion"][i]] if few else []
        label = escape(f"{i} {name}" if str(i) != name else name)
        table.add_row(label, "–" if share is None else f"{share:.2%}", *counts)
    console.print(table)
    if "rounds" in found:
        console.print(rounds_table(found["rounds"]))


def print_summary(summary: dict[str, Any]) -> None:
    """What a run found, on stderr: accuracy, bytes a client sends, seconds per stage, rounds."""
    console = Console(stderr=True)
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("top-1 accuracy", f"{summary['top1']:.2%} of {summary['n']} test rows")
    table.add_row("clients", str(summary["clients"]))
    sent, rounds = summary["bytes_per_client"], summary["rounds"]
    if len(sent) == 1:
        table.add_row("a client sends", describe_upload(sent[0]))
    for name, seconds, file in _by_stage(summary["stages"]):
        table.add_row(name, f"{seconds:.2f} s   {file}")
    table.add_row("digest of the total", summary["total_digest"])
    console.print(table)
    if len(rounds) > 1:
        console.print(rounds_table(rounds))


def _by_stage(stages: list[dict[str, Any]]) -> list[tuple[str, float, str]]:
    """Stages in order, those of several rounds together, with the last file of each."""
    found: dict[str, tuple[float, str]] = {}
    for one in stages:
        seconds, _ = found.get(one["stage"], (0.0, ""))
        found[one["stage"]] = (seconds + one["seconds"], one["file"])
    return [(name, *rest) for name, rest in found.items()]


def print_status(found: dict[str, Any]) -> None:
    """The parts of a run, its jobs if there are any, and the command that continues it."""
    console = Console()
    table = Table(show_header=False, box=None)
    for part in found["parts"]:
        table.add_row(part["name"], part["state"], escape(part["why"]))
    for work in found["jobs"]:
        job = "" if work["job"] is None else f"job {work['job']}"
        failed = f", without job: {_text(list(work['failed']))}" if work["failed"] else ""
        said = f": {work['said']} ({work['log']})" if work["said"] else ""
        tasks = f"{work['done']} of {work['tasks']} {job}{failed}{said}"
        table.add_row(f"{work['name']}, round {work['round']}", work["state"], escape(tasks))
    console.print(table)
    console.print(f"{found['state']}: {found['folder']}", highlight=False)
    if found["continue"]:
        console.print("to continue:", highlight=False)
        print(found["continue"])


def describe_upload(sent: dict[str, Any]) -> str:
    """Bytes that a client sends in one round, in words."""
    if "mean_file" in sent:
        return f"{sent['mean_file'] / 1e6:.2f} MB (mean file)"
    return f"at most {sent['arrays_at_most'] / 1e6:.2f} MB"


def say_solution(path: Path) -> None:
    """One paragraph on stderr about a solved head: rank, condition, ridge, degrees of freedom."""
    from ..store.hdf5 import read_header

    header = read_header(path, "head")
    r = header["report"]
    if "phases" in r:
        _say_round(r["phases"][-1])
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
    for line in _path_lines(r.get("ridge_path", []), r["ridge"]):
        log.info("%s", line)


def _say_round(last: dict[str, Any]) -> None:
    error = f", training error {last['training_mse']:.6g} a row" if "training_mse" in last else ""
    log.info(
        "solve: %s in %.2f s%s; a client sent at most %.2f MB and gets %.2f MB",
        last["phase"], last["solve_seconds"], error,
        last["upload_bytes"] / 1e6, last["download_bytes"] / 1e6,
    )  # fmt: skip


def _path_lines(path: list[dict[str, Any]], chosen: float) -> list[str]:
    if not path:
        return []
    columns = [c for c in PATH_COLUMNS if c in path[0]]
    lines = ["  ".join(f"{c:>18}" for c in columns)]
    for point in path:
        cells = ["–" if point[c] is None else f"{point[c]:.6g}" for c in columns]
        mark = "  ← chosen" if point["ridge"] == chosen else ""
        lines.append("  ".join(f"{c:>18}" for c in cells) + mark)
    return lines


def write_json(value: Any, path: Path) -> Path:
    """Write JSON under its final name only when it is whole."""
    return write_text(json.dumps(value, indent=2) + "\n", path)


def write_text(text: str, path: Path) -> Path:
    """Write a text under its final name only when it is whole."""
    return atomically(path, lambda p: p.write_text(text))


def write_confusion(found: dict[str, Any], path: Path) -> Path:
    """The confusion matrix as CSV with class names: rows true, columns predicted."""
    import pandas as pd

    names = list(found["per_class"])
    frame = pd.DataFrame(found["confusion"], index=names, columns=names)
    return atomically(path, lambda p: frame.to_csv(p, index_label="true"))


def atomically(path: Path, write: Any) -> Path:
    """``write(place)`` a file, which takes its final name only when it is whole."""
    beside = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    return path
