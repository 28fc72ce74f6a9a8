"""The campaign of faults: how often each fault was tried and survived.

    python tests/faults/campaign.py            all of it, and the table of docs/reliability.md
    python tests/faults/campaign.py bit-flips  one fault, as JSON; --tries, --seed, --folder

Every fault runs in a process of its own (a crash of a library is a failure of that fault, not the
end of the campaign), within limits of time and memory; see `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- campaign: begin -->", "<!-- campaign: end -->"


@dataclass(frozen=True)
class Fault:
    """``where`` it is written; ``tries`` is a number of tries, or of places in each file."""

    title: str
    where: str
    tries: int


FAULTS = {
    "truncation": Fault(
        "file cut at every boundary of its structure, and a byte to either side",
        "file_faults:truncation", 10_000,
    ),
    "bit-flips": Fault("one bit of the file turned", "file_faults:bit_flips", 1000),
    "swapped": Fault("another file in a file's place", "file_faults:swapped", 200),
    "swapped-rounds": Fault("a total solved with another head", "file_faults:swapped_rounds", 100),
    "two-writers": Fault("the same command twice at once", "work_faults:two_writers", 2),
    "disk-full": Fault("no space left after some bytes", "work_faults:disk_full", 3),
    "fuzz-headers": Fault(
        "fuzzed header, all checksums right: every reading command", "fuzz_faults:headers", 60
    ),
    "fuzz-toml": Fault("fuzzed run configuration (TOML), read", "fuzz_faults:toml", 500),
    "fuzz-tables": Fault("fuzzed CSV, parquet table of clients", "fuzz_faults:tables", 150),
    "fuzz-embeddings": Fault(
        "fuzzed .npz, .npy, labels, class lists", "fuzz_faults:embeddings", 200
    ),
}  # fmt: skip


def run(
    name: str, folder: Path, tries: int, seed: int = 0, timeout: float = 1800
) -> dict[str, Any]:
    """One fault in a process of its own: its counts, and the failures in words."""
    command = [sys.executable, __file__, name, "--folder", folder, "--tries", tries, "--seed", seed]
    begun = time.monotonic()
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout), "seconds": round(time.monotonic() - begun, 1)}


def _work(name: str, folder: Path, tries: int, seed: int) -> None:
    """In the process of its own."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import specimens
    from bench import Bench

    module, function = FAULTS[name].where.split(":")
    os.fsync = lambda _: None  # nothing here survives a power cut, nor has to
    bench = Bench()
    with tempfile.TemporaryDirectory() as work:
        draw = random.Random(f"{name} {seed}")
        files = specimens.load(folder)
        getattr(__import__(module), function)(bench, files, tries, draw, Path(work))
    print(json.dumps(bench.report()))


def specimens_in(folder: Path) -> Path:
    """The specimens, made in a process of their own."""
    code = (
        f"import sys; sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}; import specimens, pathlib; "
    )
    code += f"specimens.make(pathlib.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    return folder


def _all(seed: int) -> int:
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = specimens_in(Path(temporary))
        for name, fault in FAULTS.items():
            found = run(name, folder, fault.tries, seed)
            survived = found["tries"] - len(found["failures"])
            failed += len(found["failures"])
            rows.append(
                f"| {fault.title} | {found['tries']} | {survived} | {found['refused']} | "
                f"{found['harmless']} | {found['megabytes']} | {found['seconds']:.0f} |"
            )
            print(rows[-1], file=sys.stderr)
            for failure in found["failures"]:
                print("   ", failure, file=sys.stderr)
    if not failed:
        _write(rows)
    return 1 if failed else 0


def _write(rows: list[str]) -> None:
    head = "| fault | tries | survived | refused | harmless | MB at most | seconds |"
    table = "\n".join([head, "| --- " + "| ---: " * 6 + "|", *rows])
    before, _, rest = TABLE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    TABLE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", nargs="?", choices=FAULTS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tries", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.fault is None:
        return _all(given.seed)
    tries = given.tries or FAULTS[given.fault].tries
    if given.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            _work(given.fault, specimens_in(Path(folder)), tries, given.seed)
    else:
        _work(given.fault, given.folder, tries, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
