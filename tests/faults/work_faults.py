"""Faults around a running stage: what lies in its way, who else writes, and disks that are full."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

from bench import COMMAND, SECONDS, Bench, installed

from afltool.files.hdf5 import read_header
from afltool.files.outputs import partial_path

Files = dict[str, Path]
STAGES = ("import", "partition", "head", "local-stats", "aggregate", "solve")


def stage(name: str, files: Files, out: Path) -> list[Any]:
    """A stage by name, writing ``out``."""
    train, clients = files["features-int16"], files["partition"]
    stats = files["statistics-one-client"].parent
    return {
        "import": ["import", files["input-train.npz"], "-o", out],
        "partition": ["partition", train, "--scheme", "iid", "--clients", 3, "-o", out],
        "head": ["head", "linear", "-o", out],
        "local-stats": ["local-stats", train, "--partition", clients, "--head", "linear",
                        "--sum", "-o", out],
        "aggregate": ["aggregate", stats, "-o", out],
        "solve": ["solve", files["statistics-linear-1"], "-o", out],
    }[name]  # fmt: skip


def digests(files: Files, work: Path) -> dict[str, str]:
    """What each stage gives undisturbed."""
    found = {}
    for name in STAGES:
        out = work / f"undisturbed-{name}.h5"
        if not out.exists():
            assert installed(stage(name, files, out)).returncode == 0
        found[name] = read_header(out)["digest"]
    return found


def two_writers(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """The same command twice at once: one writes, the other is told to wait, or finds it done."""
    wanted = digests(files, work)
    for name in STAGES:
        for number in range(tries):
            out = work / f"{name}-{number}.h5"
            command = [str(COMMAND), *map(str, stage(name, files, out))]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            both = []
            for _ in range(2):
                both.append(subprocess.Popen(command, text=True, **pipes))
                time.sleep(draw.random() * 0.05 * number)
            ends = [(*p.communicate(timeout=SECONDS), p.returncode) for p in both]
            bench.tries += 1
            told = all(code == 0 or (code == 3 and "another process" in said)
                       for _, said, code in ends)  # fmt: skip
            if told and any(code == 0 for *_, code in ends) and _whole(out) == wanted[name]:
                bench.harmless += 1
            else:
                bench.failures.append(f"{name}: {ends}")


def disk_full(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A disk that is full after so many bytes; afterwards the same command succeeds."""
    wanted = digests(files, work)
    disk, unmount = _small_disk(work)
    for name in STAGES:
        size = (work / f"undisturbed-{name}.h5").stat().st_size
        for number in range(tries):
            out, room = disk / "out.h5", draw.randrange(0, size + 4096)
            options: dict[str, Any] = {}
            if unmount is None:
                limit = max(room, 1)
                options["preexec_fn"] = lambda limit=limit: resource.setrlimit(
                    resource.RLIMIT_FSIZE, (limit, limit)
                )
            else:
                _fill(disk, room)
            code = bench.command(
                f"{name}, {room} bytes", stage(name, files, out),
                lambda out=out: _whole(out), wanted[name], (3,), **options,
            )  # fmt: skip
            left = [p.name for p in disk.iterdir() if p.name != "filler"]
            if code != 0 and left:
                bench.failures.append(f"{name}: {left} lies there after {number}")
            for path in disk.iterdir():
                path.unlink()
            if code != 0 and number == 0:
                bench.command(f"{name}, again", stage(name, files, out),
                              lambda out=out: _whole(out), wanted[name], ())  # fmt: skip
                out.unlink()
    if unmount is not None:
        unmount()


# ---------------------------------------------------------------- disks


def _whole(out: Path) -> str:
    """The digest of a finished file; an unfinished one beside it would be a fault."""
    assert not partial_path(out).exists()
    return str(read_header(out)["digest"])


def _small_disk(work: Path) -> tuple[Path, Any]:
    """A tmpfs of 1 MB and how to unmount it; without the right to mount a folder and None."""
    disk = work / "disk"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        return disk, None
    return disk, lambda: subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(disk: Path, room: int) -> None:
    free = shutil.disk_usage(disk).free
    with (disk / "filler").open("wb", buffering=0) as file:
        file.write(bytes(max(free - room, 0)))
