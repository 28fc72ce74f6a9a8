"""What a second core brings: every head with one thread and with more, in turn.

    python benchmarks/bench_cores.py [--rows 50000] [--only linear,softmax] [--threads 2]
                                     [--repeats 5] [--folder DIR] [--beside OTHER/bin/afltool]

Rows are those of `synthetic.py`, 1,280 int16 features, 100 classes; 10,000 more are the test rows.
A run is one command, from features to accuracy. *wall* and *cpu* are seconds of the whole command,
start of Python included; medians of the repeats. Stages are those that the run counts itself:
*clients* local-stats, *server* solve, *test* evaluate. *evaluate* and *predict* are the commands on
all rows. A gain is the seconds with one thread by those with more. ``--beside``: another version,
with one thread.

*serial* is the share of a run that one thread does: with n threads a run takes s + (1 − s)/n of its
time (Amdahl, 1967). First the share that the gain leaves; then, as *alone*, the seconds of the same
run of 128 rows, pinned to one core (taskset), which has all but the work on rows. What follows for
16 and 64 threads is arithmetic, not measured.

    python benchmarks/bench_cores.py --files     seconds of import, convert, verify and aggregate
    python benchmarks/bench_cores.py --inside    the first sums of a head in one running process
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine
from synthetic import feature_file

COMMAND = Path(sys.executable).with_name("afltool")
HEADS = {
    "linear": "linear --ridge 1",
    "discriminant": "discriminant --rule lda --shrinkage 0.05",
    "random-features": "random-features --width 4096 --ridge 1",
    "random-features fixed": "random-features --width 4096 --ridge 1 --compute fixed",
    "softmax": "softmax --rounds 6",
    "deepafl": "deepafl --layers 3",
    "deepafl fixed": "deepafl --layers 3 --compute fixed",
    "safle": "safle --experts 512 --ridge 100",
}
STAGES = {"clients": "local-stats", "server": "solve", "test": "evaluate"}
Seconds = dict[str, float]


def main() -> None:
    o = options()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(o.folder or temporary)
        files = [feature_file(folder, o.rows, 100), feature_file(folder, 10_000, 100, seed=1)]
        if o.files:
            of_files(folder, files[0], o)
            return
        files.append(feature_file(folder, 128, 100, seed=2))
        if o.inside:
            inside(folder, files[0], files[2], o)
            return
        print(f"{o.rows} rows; seconds with 1 and {o.threads} threads, and the gain\n")
        print(f"{'':22}{'wall':>18}{'gain':>6}{'cpu':>15}{'clients':>18}{'server':>12}{'test':>12}"
              f"{'serial':>8}{'16':>6}{'64':>6}")  # fmt: skip
        for name, words in HEADS.items():
            if not o.only or name in o.only.split(","):
                compare(name, words, files, o)


def options() -> argparse.Namespace:
    known = argparse.ArgumentParser()
    known.add_argument("--rows", type=int, default=50_000)
    known.add_argument("--only", default="")
    known.add_argument("--threads", type=int, default=2)
    known.add_argument("--repeats", type=int, default=5)
    known.add_argument("--folder")
    known.add_argument("--beside")
    known.add_argument("--files", action="store_true")
    known.add_argument("--inside", action="store_true")
    return known.parse_args()


def compare(name: str, words: str, files: list[Path], o: argparse.Namespace) -> None:
    sides = [(COMMAND, 1), (COMMAND, o.threads)] + ([(Path(o.beside), 1)] if o.beside else [])
    found: list[list[Seconds]] = [[] for _ in sides]
    for _ in range(o.repeats):
        for times, (command, threads) in zip(found, sides, strict=True):
            times.append(took(command, threads, words, files))
    one, more, *beside = ({k: statistics.median(t[k] for t in every) for k in every[0]}
                          for every in found)  # fmt: skip
    line(name, one, more, o.threads)
    for other in beside:
        print(f"{'  the other version':22}{other['wall']:7.2f}{'':17}{other['cpu']:7.2f}")
    for what in ("evaluate", "predict"):
        print(f"  {what:20}{pair(one, more, what)}{gain_of(one, more, what):6.2f}"
              f"{pair(one, more, what + ' cpu')}")  # fmt: skip
    alone = statistics.median(run_of(COMMAND, 1, words, [files[2]] * 2, ["taskset", "-c", "0"])[0]
                              for _ in range(o.repeats))  # fmt: skip
    print(f"  {'alone':20}{alone:9.2f}{'':69}{amdahl(alone / one['wall'])}", flush=True)


def amdahl(serial: float) -> str:
    more = "".join(f"{1 / (serial + (1 - serial) / n):6.1f}" for n in (16, 64))
    return f"{serial:8.2f}{more}"


def inside(folder: Path, features: Path, few: Path, o: argparse.Namespace) -> None:
    """`local_stats` of the first phase, without the start of Python and imports."""
    from afltool import local_stats

    print(f"seconds of local_stats with 1 and {o.threads} threads, the gain, processor seconds\n")
    for name, words in HEADS.items():
        if name not in (o.only.split(",") if o.only else ("linear", "softmax", "deepafl")):
            continue
        first = folder / f"{name.replace(' ', '-')}.h5"
        subprocess.run([COMMAND, "head", *words.split(), "-o", first], check=True, text=True,
                       capture_output=True)  # fmt: skip
        local_stats(few, first, folder / "few", client=name)  # whatever is loaded once
        found: dict[int, list[tuple[float, float]]] = {1: [], o.threads: []}
        for number in range(o.repeats):
            for threads, times in found.items():
                begun, worked = time.perf_counter(), time.process_time()
                out = folder / f"{first.stem}-{number}-{threads}"
                local_stats(features, first, out, client=name, threads=threads)
                times.append((time.perf_counter() - begun, time.process_time() - worked))
        wall, cpu = ([statistics.median(t[i] for t in found[n]) for n in found] for i in (0, 1))
        print(f"{name:22}{wall[0]:9.2f}{wall[1]:7.2f}{wall[0] / wall[1]:7.2f}"
              f"{cpu[0]:9.2f}{cpu[1]:7.2f}", flush=True)  # fmt: skip


def of_files(folder: Path, features: Path, o: argparse.Namespace) -> None:
    """Commands that read or write files, and no head: rows as .npy, 100 clients' statistics."""
    import numpy as np

    from afltool import local_stats, partition
    from afltool.files.features import open_features

    with open_features(features) as rows:
        np.save(folder / "rows.npy", rows.read_stored(0, len(rows)).astype(np.float32) / 512)
        np.save(folder / "labels.npy", rows.labels)
    clients = partition(features, folder / "clients.h5", scheme="iid", clients=100)
    stats = folder / "stats"
    local_stats(features, "linear", stats, partition=clients)
    given = sorted(stats.glob("*.h5"))
    commands = {
        "import": ["import", folder / "rows.npy", "--labels", folder / "labels.npy"],
        "convert": ["convert", features, "--dtype", "float32"],
        "verify, the rows": ["verify", features],
        "verify, 100 clients": ["verify", *given],
        "aggregate, 100 clients": ["aggregate", stats],
    }
    print(f"seconds with 1 and {o.threads} threads, the gain, processor seconds\n")
    for name, words in commands.items():
        out = (
            []
            if name.startswith("verify")
            else ["-o", folder / f"made-{words[0]}.h5", "--overwrite"]
        )
        found: dict[int, list[tuple[float, float]]] = {1: [], o.threads: []}
        for _ in range(o.repeats):
            for threads, times in found.items():
                times.append(timed(COMMAND, *words, *out, "--threads", threads))
        wall, cpu = ([statistics.median(t[i] for t in found[n]) for n in found] for i in (0, 1))
        print(f"{name:22}{wall[0]:9.2f}{wall[1]:7.2f}{wall[0] / wall[1]:7.2f}"
              f"{cpu[0]:9.2f}{cpu[1]:7.2f}", flush=True)  # fmt: skip


def line(name: str, one: Seconds, more: Seconds, threads: int) -> None:
    gain = one["wall"] / more["wall"]
    serial = max(0.0, (threads / gain - 1) / (threads - 1))
    stages = "".join(f"{pair(one, more, k)}{gain_of(one, more, k):4.2f}" for k in STAGES)
    print(f"{name:22}{pair(one, more, 'wall')}{gain:6.2f}{pair(one, more, 'cpu')}{stages}"
          f"{amdahl(serial)}", flush=True)  # fmt: skip


def pair(one: Seconds, more: Seconds, key: str) -> str:
    return f"{one[key]:9.2f}{more[key]:7.2f} "


def gain_of(one: Seconds, more: Seconds, key: str) -> float:
    return one[key] / max(more[key], 1e-9)


def took(command: Path, threads: int, words: str, files: list[Path]) -> Seconds:
    """Seconds of a run, of its stages, and of scoring all rows with its head."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "run"
        wall, cpu = run_of(command, threads, words, files, out=out)
        stages = json.loads((out / "summary.json").read_text())["stages"]
        found = {"wall": wall, "cpu": cpu}
        for short, stage in STAGES.items():
            found[short] = sum(s["seconds"] for s in stages if s["stage"].startswith(stage))
        if command == COMMAND:
            head, how = out / "head-final.h5", ["--threads", threads]
            made = ["-o", Path(temporary) / "rows.csv"]
            for what, more in (("evaluate", []), ("predict", made)):
                seconds = timed(command, what, head, files[0], *more, *how)
                found[what], found[what + " cpu"] = seconds
        return found


def run_of(
    command: Path, threads: int, words: str, files: list[Path], before: list[str] | None = None,
    out: Path | None = None,
) -> tuple[float, float]:  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        given = ["--train-features", files[0], "--test-features", files[1], "--clients", 10]
        how = ["--head", *words.split(), "-o", out or Path(temporary) / "run", "--threads", threads]
        return timed(command, "run", *given, *how, before=before)


def timed(command: Path, *words: object, before: list[str] | None = None) -> tuple[float, float]:
    begun, start = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*(before or []), str(command), "-q", *map(str, words)],
        check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": str(os.cpu_count())},
    )  # fmt: skip
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - start.ru_utime - start.ru_stime
    return wall, cpu


if __name__ == "__main__":
    main()
