"""Peak memory of DeepAFL's local-stats by the number of layers, each command in its own process.

    python benchmarks/bench_deepafl_memory.py [ROWS [WIDTH]]       60,000 rows × 1,280, width 1024

The heads are trained on a few rows: what gathering takes does not depend on what was learned. Shown
is the phase block-(T+1), the last of its layer, where Φ_T of every row is computed from the
features.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_memory import peak_of
from measure import fresh, machine

DIM, CLASSES, LAYERS = 1280, 10, (1, 5, 20, 50)


def main() -> None:
    given = [a for a in sys.argv[1:] if a != "--child"]
    rows, width = (int(a) for a in [*given, *("60000", "1024")[len(given) :]][:2])
    if "--child" in sys.argv:  # in a process of its own: a child inherits its parent's peak
        make_files(Path(given[2]), rows, width)
        return
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        fresh(__file__, str(rows), str(width), name)
        for layers in LAYERS:
            print(f"T = {layers:2}: {gather(name, f'b{layers}.h5')}", flush=True)


def gather(folder: str, head: str) -> str:
    """One phase by the installed command: peak memory and seconds."""
    out = Path(folder) / "statistics.h5"
    out.unlink(missing_ok=True)
    command = [str(Path(sys.executable).with_name("afltool")), "-q", "local-stats", "train.h5"]
    options = ["--client", "a", "--sum", "--head", head, "-o", out.name]
    begun = time.perf_counter()
    peak = peak_of([*command, *options], folder)
    return f"{peak:5.0f} MB {time.perf_counter() - begun:6.1f} s"


def make_files(folder: Path, rows: int, width: int) -> None:
    """Random features of so many rows, and heads in the last two phases of each of `LAYERS`."""
    import afltool
    from afltool.files.hdf5 import recipe
    from afltool.files.heads import save_head
    from afltool.files.statistics import load_statistics
    from afltool.heads import make_head

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, DIM)).astype(np.float32)
    y = rng.integers(0, CLASSES, rows)
    np.savez(folder / "x.npz", x=X, y=y)
    features = afltool.import_embeddings(folder / "x.npz", folder / "train.h5")
    total = afltool.local_stats(features, "linear", folder / "t.h5", client="a", sum=True)
    context = load_statistics(total).context
    head = make_head("deepafl", {"layers": max(LAYERS) + 1, "width": width}).bind(DIM, CLASSES)
    some, labels = X[:1500], y[:1500]
    while (phase := head.phase()) is not None:
        name, number = phase.split("-")
        layers = int(number) - (name == "block")
        if layers in LAYERS:
            save_head(folder / f"{name[0]}{layers}.h5", head, recipe("bench", {}, {}), context)
        head, _ = head.absorb(head.gather([(some, labels)])[0])


if __name__ == "__main__":
    main()
