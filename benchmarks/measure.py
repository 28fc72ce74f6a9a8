"""What every benchmark needs: repeated timing, fresh processes, peak memory, the machine."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

INSTRUCTIONS = {"sha_ni": "SHA-256", "avx2": "AVX2", "avx512f": "AVX-512"}  # that speed depends on


def machine() -> str:
    """Processor and its instructions, cores, versions, and the kernels that each BLAS has chosen.

    A figure without them says nothing.
    """
    import numpy
    import scipy.linalg  # noqa: F401 - its BLAS is another one
    from threadpoolctl import threadpool_info

    about = dict(
        line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line
    )
    about = {name.strip(): value.strip() for name, value in about.items()}
    flags = about.get("flags", "").split()
    there = [said if flag in flags else f"no {said}" for flag, said in INSTRUCTIONS.items()]
    blas = [
        f"{Path(one['filepath']).parent.name.removesuffix('.libs')}: {one['internal_api']} "
        f"{one['version']} {one['architecture']}, {one['num_threads']} threads"
        for one in threadpool_info()
        if one["user_api"] == "blas"
    ]
    processor, cores = about.get("model name", platform.machine()), len(os.sched_getaffinity(0))
    return (
        f"{processor} ({', '.join(there)}), {cores} cores, Python {platform.python_version()}, "
        f"NumPy {numpy.__version__}; {'; '.join(blas)}"
    )


class Took(NamedTuple):
    wall: float  # seconds
    cpu: float  # seconds of the processor, user and system: other load hardly changes them


def command(*args: object, **environment: str) -> Took:
    """What one command of afltool takes, from the start of Python to its end."""
    code = "from afltool.cli import main; main()"
    begun, before = time.perf_counter(), _cpu_of_children()
    subprocess.run(
        [sys.executable, "-c", code, "-q", *map(str, args)], check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir(),
        env={**os.environ, **environment},
    )  # fmt: skip
    return Took(time.perf_counter() - begun, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def alternately(
    *work: Callable[[], object],
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median seconds of each, taken in turn (A B A B …) after one warm-up, so drift hits all."""
    for one in work:
        one()
    seconds: list[list[float]] = [[] for _ in work]
    for _ in range(repeats):
        for times, one in zip(seconds, work, strict=True):
            begun = clock()
            one()
            times.append(clock() - begun)
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


def digits() -> list[str]:
    """scikit-learn's digits as feature files, for a benchmark that is given none: TRAIN, TEST."""
    import numpy
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    import afltool

    folder = Path(tempfile.mkdtemp(prefix="digits-"))
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=0.25, stratify=y, random_state=0)
    for name, rows, labels in (("train", *parts[::2]), ("test", *parts[1::2])):
        numpy.savez(folder / f"{name}.npz", x=rows, y=labels)
        afltool.import_embeddings(folder / f"{name}.npz", folder / f"{name}.h5", backbone="pixels")
    print(f"no files given: scikit-learn's digits, 64 features, in {folder}")
    return [str(folder / "train.h5"), str(folder / "test.h5")]
