"""What is said of a solved head, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files.hdf5 import read_header
from ..progress import log
from ..values.text import byte_text

PATH_COLUMNS = ("ridge", "gcv", "validation_mse", "training_mse", "degrees_of_freedom")


def say_solution(path: Path) -> None:
    """One paragraph on stderr about a solved head: rank, condition, ridge, degrees of freedom."""
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
        log.debug("%s", line)


def _say_round(last: dict[str, Any]) -> None:
    error = f", training error {last['training_mse']:.6g} per row" if "training_mse" in last else ""
    log.info(
        "solve: %s in %.2f s%s; a client sent at most %s and gets %s",
        last["phase"], last["solve_seconds"], error,
        byte_text(last["upload_bytes"]), byte_text(last["download_bytes"]),
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
