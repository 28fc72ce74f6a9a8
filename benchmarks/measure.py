"""What every benchmark needs: repeated timing, fresh processes, peak memory, the machine."""

from __future__ import annotations

import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def machine() -> str:
    """Processor, cores and versions: a figure without them says nothing."""
    import os

    import numpy

    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cores = len(os.sched_getaffinity(0))
    processor = names[0] if names else platform.machine()
    return (
        f"{processor}, {cores} cores, Python {platform.python_version()}, NumPy {numpy.__version__}"
    )


def alternately(*work: Callable[[], object], repeats: int = 5) -> list[float]:
    """Median seconds of each, taken in turn (A B A B …) after one warm-up, so drift hits all."""
    for one in work:
        one()
    seconds: list[list[float]] = [[] for _ in work]
    for _ in range(repeats):
        for times, one in zip(seconds, work, strict=True):
            begun = time.perf_counter()
            one()
            times.append(time.perf_counter() - begun)
    return [statistics.median(times) for times in seconds]


def fresh(script: str, *arguments: str) -> list[str]:
    """Run ``script --child arguments`` in a new process; the words that it prints."""
    done = subprocess.run(
        [sys.executable, script, "--child", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.split()


def peak_mb() -> float:
    """Largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
