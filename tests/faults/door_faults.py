"""Doors: files that point out of themselves, bombs, and outputs where none may go."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
from bench import COMMAND, MEGABYTES, SECONDS, Bench, installed

from afltool.files.hdf5 import read_header

Files = dict[str, Path]


def ways_out(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Links, virtual and external data, references, to a file or to a pipe that would hang."""
    from damage import outward_ways as ways

    pipe = work / "pipe.h5"
    os.mkfifo(pipe)
    names = [n for n in sorted(files) if n.startswith("statistics-linear")][:tries]
    for name in names:
        for elsewhere in (files[name], pipe):
            for way, make in ways(elsewhere).items():
                path = work / "outward.h5"
                path.write_bytes(files[name].read_bytes())
                with h5py.File(path, "r+", locking=False) as file:
                    make(file)
                for args in (["verify", path], ["info", path],
                             ["aggregate", path, "-o", work / "out.h5"]):  # fmt: skip
                    code = bench.inside(f"{name}, {way} to {elsewhere.name}, {args[0]}", args)
                    if code == 0:
                        bench.failures.append(f"{way}: {args[0]} read it")


def bombs(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Zeros and lists of gigabytes in a small file, read with a gigabyte of memory."""
    for name in [n for n in sorted(files) if n.startswith("statistics")][:tries]:
        for path in (_zeros(files[name], work / "zeros.h5"), _lists(files[name], work / "list.h5")):
            for args in (["verify", path], ["info", path], ["solve", path, "-o", work / "out.h5"],
                         ["aggregate", path, "-o", work / "out.h5"]):  # fmt: skip
                limit = MEGABYTES * 10**6
                code = bench.command(
                    f"{name}, {path.name}, {args[0]}", args,
                    preexec_fn=lambda limit=limit: resource.setrlimit(
                        resource.RLIMIT_DATA, (limit, limit)
                    ),
                )  # fmt: skip
                if code == 0:
                    bench.failures.append(f"{path.name}: {args[0]} read it")


def _zeros(source: Path, target: Path) -> Path:
    """300 million zeros in an additive array, less than a megabyte of file."""
    from damage import forge

    with h5py.File(source) as file:
        name = min(file["arrays"])
    return forge(source, target, **{f"arrays__{name}": np.zeros(300_000_000, np.uint8)})


def _lists(source: Path, target: Path) -> Path:
    """A header of four million empty lists, its checksum right."""
    from damage import with_header

    header = read_header(source)
    header.pop("kind")
    text = json.dumps(header)[:-1] + ',"more":[' + ",".join(["[]"] * 4_000_000) + "]}"
    with_header(source, target, text.encode())
    return target


def outputs(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Outputs at inputs (through links, too), at other kinds, devices, folders, odd names."""
    from work_faults import STAGES, stage

    (work / "folder.h5").mkdir()
    os.mkfifo(work / "pipe.h5")
    (work / "text").write_text("my thesis")
    (work / "link.h5").symlink_to(work / "target.h5")
    fixed = ["", ".", "..", "/", "-", "/dev/null", "/dev/stdout", work / "folder.h5",
             work / "pipe.h5", work / "text", work / "link.h5", work / "x.partial"]  # fmt: skip
    for name in STAGES[:tries]:
        inputs = [
            a for a in stage(name, files, Path("unused")) if isinstance(a, Path) and a.is_file()
        ]
        linked = []
        for number, path in enumerate(inputs):
            linked += [work / f"{name}-{number}.hard", work / f"{name}-{number}.soft"]
            os.link(path, linked[-2])
            linked[-1].symlink_to(path)
        before = {path: path.read_bytes() for path in [*inputs, work / "text"]}
        for out in [*fixed, *inputs, *linked]:
            allowed = [] if out == work / "text" else ["--overwrite"]  # which replaces any file
            args = [*stage(name, files, Path("unused"))[:-1], out, *allowed]
            code = bench.inside(f"{name} to {out!r}", args)
            if code == 0:
                bench.failures.append(f"{name} wrote {out!r}")
        for path, content in before.items():
            if path.read_bytes() != content:
                bench.failures.append(f"{name} changed {path}")


def stops(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """SIGTERM and SIGUSR1 at any moment, the first and the last ones too: 75, or 0 when done."""
    from work_faults import stage

    for name in ("head", "aggregate"):
        args = [str(COMMAND), *map(str, stage(name, files, work / f"{name}-whole.h5"))]
        begun = time.monotonic()
        subprocess.run(args, check=True, capture_output=True)
        took = time.monotonic() - begun
        for number in (signal.SIGTERM, signal.SIGUSR1):
            for k in range(tries):
                out = work / f"{name}-{number.name}-{k}.h5"
                command = [str(COMMAND), *map(str, stage(name, files, out))]
                process = subprocess.Popen(
                    command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                while process.poll() is None and not _caught(process.pid, number):
                    time.sleep(0.001)  # Python itself is still starting
                time.sleep(took * k / tries)
                process.send_signal(number)
                _, said = process.communicate(timeout=SECONDS)
                bench.tries += 1
                whole = process.returncode == 0 and read_header(out)["digest"]
                if whole or (process.returncode == 75 and len(said) > 20 and not out.exists()):
                    bench.harmless += 1
                else:
                    bench.failures.append(f"{name}, {number.name}: {process.returncode}, {said}")


def _caught(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, by /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def folder_loops(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Folders that link to themselves and to each other: every file once, in bounded time."""
    folder, other = work / "loops", work / "other.h5"
    for place in (folder, other):
        place.mkdir()
    stats = sorted(files["statistics-one-client"].parent.glob("*.h5"))
    for path in stats:
        (folder / path.name).write_bytes(path.read_bytes())
    for name in ("a.h5", "b.h5", "c.h5"):
        (folder / name).symlink_to(folder)
        (other / name).symlink_to(folder)
    (folder / "d.h5").symlink_to(other)
    plain = work / "plain.h5"
    assert installed(["aggregate", stats[0].parent, "-o", plain]).returncode == 0
    wanted = read_header(plain)["digest"]
    items: list[Any] = [folder, other, f"{work}/*.h5/*.h5", f"{folder}/*/*/*.h5"]
    for k, item in enumerate(items[:tries]):
        out = work / f"sum{k}"
        bench.inside(f"aggregate {item}", ["aggregate", item, "-o", out],
                     lambda out=out: read_header(out)["digest"], wanted)  # fmt: skip
        bench.inside(f"verify {item}", ["verify", item])
