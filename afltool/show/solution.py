"""What is said of a solved head, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files.hdf5 import read_header
from ..progress import log
from ..values.text import byte_text


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
    for point in r.get("ridge_path", []):
        facts = ", ".join(f"{k} {v:.6g}" for k, v in point.items() if v is not None)
        log.debug("solve: %s%s", facts, " ← chosen" if point["ridge"] == r["ridge"] else "")


def _say_round(last: dict[str, Any]) -> None:
    error = f", training error {last['training_mse']:.6g} per row" if "training_mse" in last else ""
    log.info(
        "solve: %s in %.2f s%s; a client sent at most %s and gets %s",
        last["phase"], last["solve_seconds"], error,
        byte_text(last["upload_bytes"]), byte_text(last["download_bytes"]),
    )  # fmt: skip
