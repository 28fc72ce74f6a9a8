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


def stale_partial(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """An unfinished file of an earlier run, of another program, or of noise lies in the way."""
    wanted = digests(files, work)
    leftovers = {
        "empty": b"", "noise": draw.randbytes(5000), "zeros": bytes(5000), "text": b"not HDF5\n",
        "another": files["partition"].read_bytes(),
        "half": files["features-int16"].read_bytes()[:9000],
    }  # fmt: skip
    cases = [(s, how) for s in STAGES for how in leftovers][: max(tries, 1) * len(STAGES)]
    for name, how in cases:
        out = work / "out.h5"
        out.unlink(missing_ok=True)
        partial_path(out).write_bytes(leftovers[how])
        bench.inside(
            f"{name}, {how}", stage(name, files, out), lambda out=out: _whole(out), wanted[name]
        )


def clock_skew(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Times of inputs and outputs in the future, at zero, or going backwards."""
    wanted = digests(files, work)
    for name in STAGES:
        for seconds in [0, 1, 2**31 + 5, time.time() + 10**8, -(10**6)][:tries]:
            out = work / "out.h5"
            out.unlink(missing_ok=True)
            _touch(files, seconds)
            args = stage(name, files, out)
            bench.inside(f"{name}, {seconds}", args, lambda out=out: _whole(out), wanted[name])
            os.utime(out, (seconds, seconds))
            _touch(files, time.time())
            before = out.read_bytes()
            bench.inside(f"{name} again", args, lambda out=out: out.read_bytes(), before)


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


def read_only(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A folder that may not be written into: refused, and nothing is left."""
    folder = work / "read-only"
    folder.mkdir(exist_ok=True)
    root = os.geteuid() == 0
    if root:
        for step in (["--bind", folder, folder], ["-o", "remount,ro,bind", folder]):
            if subprocess.run(["mount", *step], check=False, capture_output=True).returncode:
                return  # root without the right to mount may write everywhere
    else:
        folder.chmod(0o555)
    for name in STAGES[:tries]:
        for out in (folder / "out.h5", folder / "new" / "out.h5"):
            bench.inside(f"{name} to {out}", stage(name, files, out))
            if any(folder.iterdir()):
                bench.failures.append(f"{name}: something was written")
    if root:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        folder.chmod(0o755)


# ---------------------------------------------------------------- disks


def _whole(out: Path) -> str:
    """The digest of a finished file; an unfinished one beside it would be a fault."""
    assert not partial_path(out).exists()
    return str(read_header(out)["digest"])


def _touch(files: Files, seconds: float) -> None:
    for path in files.values():
        os.utime(path, (seconds, seconds))


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
