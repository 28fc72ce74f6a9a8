"""Peak memory of every stage for 50,000 × 512 features and K = 1,000 clients, each in a process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import fresh, machine

STATS = "local-stats train.h5 --partition clients.h5 --head linear"
STAGES = {
    "import": "import x.npz -o train.h5",
    "partition": "partition train.h5 --alpha 0.1 --clients 1000 -o clients.h5",
    "local-stats (1,000 files)": f"{STATS} -o stats",
    "local-stats --sum": f"{STATS} --sum -o part.h5",
    "aggregate": "aggregate stats -o total.h5",
    "solve": "solve total.h5 --ridge 0 -o head.h5",
    "solve --ridge auto": "solve total.h5 --ridge auto -o head-auto.h5",
    "evaluate": "evaluate head.h5 train.h5 --json",
    "verify (1,000 files)": "verify stats",
}


def main() -> None:
    if "--child" in sys.argv:  # in a process of its own: a child inherits its parent's peak
        rng = np.random.default_rng(0)
        X = rng.normal(size=(50_000, 512)).astype(np.float32)
        np.savez(sys.argv[2], x=X, y=rng.integers(0, 10, 50_000))
        return
    command = Path(sys.executable).with_name("afltool")
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        fresh(__file__, str(Path(name) / "x.npz"))
        for stage, line in STAGES.items():
            begun = time.perf_counter()
            peak = peak_of([str(command), "-q", *line.split()], name)
            print(f"{stage:28} {peak:6.0f} MB {time.perf_counter() - begun:7.2f} s")


def peak_of(command: list[str], folder: str) -> float:
    """Largest resident size in MB of one child, read when it is reaped."""
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    used: resource.struct_rusage = usage
    return used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
