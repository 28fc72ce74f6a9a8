"""Memory, time and size of what is evaluated of many classes, command by command.

python benchmarks/bench_classes.py 10000 20000; python benchmarks/bench_classes.py 100000 20000

The numbers of classes and of test rows; 32 features, as many rows of training as classes. The peak
memory is that of each command's own process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMANDS = {
    "local-stats": "local-stats train.h5 --client a --head head0.h5 --sum -o total.h5",
    "solve": "solve total.h5 -o head.h5",
    "evaluate -o": "evaluate head.h5 test.h5 -o metrics.json",
    "evaluate --metrics": "evaluate head.h5 test.h5 --metrics f1 --bootstrap-samples 20 -o f.json",
    "predict": "predict head.h5 test.h5 -o predicted.csv",
    "evaluate --counts": "evaluate head.h5 test.h5 --counts --client a --sum -o trial/counts.h5",
    "info": "info trial/counts.h5 --json",
    "table": "table trial/counts.h5 --format csv -o table.csv",
    "plot confusion": "plot confusion metrics.json -o confusion.png",
    "report": "report trial -o page.html",
    "calibrate": "calibrate head.h5 trial/counts.h5 --method temperature -o calibrated.h5",
    "calibrate --method platt": "calibrate head.h5 trial/counts.h5 -o platt.h5",
}  # fmt: skip


def run(words: str, out: Path) -> tuple[int, float, float]:
    """Exit status, seconds and peak memory, MB, of a command."""
    begun = time.monotonic()
    child = os.fork()
    if not child:
        with out.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            os.execvp("afltool", ["afltool", "-q", *words.split()])
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - begun, usage.ru_maxrss / 1e3


def make(classes: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    middle = rng.normal(size=(classes, 32)).astype("f4")
    for name, y in (("train", np.arange(classes)), ("test", np.arange(rows) % classes)):
        x = middle[y] + 0.4 * rng.normal(size=(len(y), 32)).astype("f4")
        np.savez(f"{name}.npz", x=x, y=y)
    names = map(str, range(classes))
    Path("classes.txt").write_text("\n".join(names) + "\n")
    Path("trial").mkdir()
    for name in ("train", "test"):
        words = f"import {name}.npz --dtype float32 --classes classes.txt -o {name}.h5"
        assert run(words, Path("log"))[0] == 0, Path("log").read_text()
    assert run("head linear --ridge 1 -o head0.h5", Path("log"))[0] == 0


def main(classes: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make(classes, rows)
        print(f"{classes:,} classes, {rows:,} test rows\n")
        print("| command | s | MB of memory | MB written |")
        print("| --- | --- | --- | --- |")
        for name, words in COMMANDS.items():
            out, log = Path(words.split()[-1]), Path("log")
            status, seconds, peak = run(words, log)
            size = (out if out.is_file() else log).stat().st_size / 1e6
            said = "" if not status else f" exit {status}: {log.read_text()[-200:]!r}"
            print(f"| `{name}` | {seconds:.1f} | {peak:,.0f} | {size:.1f} |{said}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
