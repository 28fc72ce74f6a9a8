"""A session over Flower beside FedAvg by Flower's own strategy: bytes each way, and seconds.

    make flower && python benchmarks/beside_fedavg.py OUT [--flower DIR]     some minutes

Fashion-MNIST through EfficientNet-Lite0 at 64 px, 6,000 rows of three sites (Dirichlet, α = 0.5),
2,000 of test. One SuperLink with TLS and three SuperNodes on this machine. FedAvg ends with the
top-1 of the linear head, or after --rounds. Bytes of a session are those of its files with letters,
as the app counts them; of FedAvg those of its arrays. Writes OUT/table.md. What is in OUT is not
measured again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import afltool

ROOT = Path(__file__).parent.parent
SITES = ("north", "south", "west")
BITS = 9  # of the fractions of features
MASKED = {"protection": "masked", "threshold": "all"}
HEADS: dict[str, dict[str, Any]] = {
    "linear, plain": {"head": "linear", "ridge": "auto", "protection": "plain"},
    "linear, masked": {"head": "linear", "ridge": "auto", **MASKED},
    "DeepAFL, masked": {"head": "deepafl", "layers": 5, "width": 512, "compute": "fixed", **MASKED},
}


FEDAVG, TARGET = "FedAvg", "linear, masked"  # whose top-1 it is to reach


def rows(out: Path) -> None:
    """Features of the sites and of the test rows, as NPZ and as feature files."""
    rng = np.random.default_rng(0)
    (out / "classes.txt").write_text("".join(f"{c}\n" for c in range(10)))
    for split, count in (("train", 6000), ("test", 2000)):
        data = ("efficientnet_lite0", "fashion-mnist", split, out / f"{split}-all.h5")
        path = afltool.extract(
            *data, image_size=64, fraction_bits=BITS, limit=count, store=out / "store"
        )
        with h5py.File(path) as file:
            x, y = file["features"][:] / np.float32(2**BITS), file["labels"][:]
        if split == "test":
            given = {"test": np.arange(len(y))}
        else:
            cuts = {c: rng.dirichlet([0.5] * 3) for c in np.unique(y)}
            dealt = np.array([rng.choice(3, p=cuts[c]) for c in y])
            given = {name: np.flatnonzero(dealt == i) for i, name in enumerate(SITES)}
        for name, at in given.items():
            np.savez(out / f"{name}.npz", x=x[at], y=y[at].astype(str))
            how = {"classes": out / "classes.txt", "backbone": "lite0", "fraction_bits": BITS}
            afltool.import_embeddings(out / f"{name}.npz", out=out / f"{name}.h5", **how)


def loopback(programs: Path, at: Path, processes: ExitStack) -> Any:
    path = ROOT / "integrations" / "flower" / "loopback.py"
    spec = importlib.util.spec_from_file_location("loopback", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    link = module.Loopback(at, processes, programs)
    link.superlink()
    return link


def session(at: Path, out: Path, programs: Path, agreed: dict[str, Any]) -> dict[str, Any]:
    """A session of three sites; its rounds, bytes of one site each way, seconds and top-1."""
    afltool.keys([*SITES, "server"], at / "keys")
    public = [at / "keys" / f"{name}.pub" for name in SITES]
    given = {"server": at / "keys" / "server.pub", "space": out / "north.h5", **agreed}
    made = afltool.session_new([], at / "server", members=public, **given)
    command = shutil.which("afltool", path=Path(sys.executable).parent)
    with ExitStack() as processes:
        link = loopback(programs, at / "flower", processes)
        for name in SITES:
            own = {"key": at / "keys" / f"{name}.key", "features": out / f"{name}.h5"}
            agreed = {"approve": afltool.info(made)["digest"], "folder": at / name}
            link.supernode(name, {**own, **agreed, "afltool": command})
        place, begun = {"session": made.parent, "place": at / "place"}, time.monotonic()
        key = at / "keys" / "server.key"
        run = link.app({"sites": 3, "key": key, "afltool": command, **place})
        run.wait()
        seconds, said = time.monotonic() - begun, (link.folder / "run.log").read_text()
    assert (made.parent / "summary.json").exists(), said
    found = json.loads((made.parent / "summary.json").read_text())
    down, up = re.findall(r"sent (\d+) bytes to the sites, (\d+) came", said)[-1]
    top1 = afltool.evaluate(made.parent / "head-final.h5", out / "test.h5")["top1"]
    return {
        "top1": top1, "trips": len(found["rounds"]) - 1, "up": int(up) / 3, "down": int(down) / 3,
        "seconds": seconds, "rounds": found["rounds"][:-1],
    }  # fmt: skip


def fedavg(at: Path, out: Path, programs: Path, target: float, rounds: int) -> dict[str, Any]:
    """FedAvg until it has this top-1."""
    with ExitStack() as processes:
        link = loopback(programs, at, processes)
        for name in SITES:
            link.supernode(name, {"rows": out / f"{name}.npz"})
        told, begun = at / "rounds.jsonl", time.monotonic()
        given = {"test": out / "test.npz", "out": told.absolute(), "target": target}
        run = link.app({**given, "rounds": rounds}, ROOT / "benchmarks" / "flower_fedavg")
        run.wait()
        seconds = time.monotonic() - begun
    every = [json.loads(line) for line in told.read_text().splitlines()]
    best, last = max(one["top1"] for one in every), every[-1]
    return {
        "top1": best, "trips": last["round"], "up": last["bytes"], "down": last["bytes"],
        "seconds": seconds, "rounds": [],
    }  # fmt: skip


def table(out: Path) -> str:
    """What was measured so far: each as a whole, and the phases of sessions below it."""
    lines = ["| | top-1, % | rounds | MB sent | MB received | seconds |", "| --- " * 6 + "|"]
    for name in (*HEADS, FEDAVG):
        if not (path := place(out, name).with_suffix(".json")).exists():
            continue
        one = json.loads(path.read_text())
        size = f"{one['up'] / 1e6:.3f} | {one['down'] / 1e6:.3f}"
        top1, trips = f"{100 * one['top1']:.2f}", one["trips"]
        lines.append(f"| {name} | {top1} | {trips} | {size} | {one['seconds']:.0f} |")
        for r in one["rounds"]:
            up, down = max(r["sent"].values()) / 1e6, r["head_bytes"] / 1e6
            lines.append(f"| · {r['phase']} | | | {up:.3f} | {down:.3f} | {r['seconds']} |")
    return "\n".join(lines)


def place(out: Path, name: str) -> Path:
    return out / name.lower().replace(", ", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--flower", type=Path, default=Path(sys.prefix) / "flower" / "bin")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=[*HEADS, FEDAVG], action="append")
    args = parser.parse_args()
    out, programs = args.out.absolute(), args.flower.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "test.h5").exists():
        rows(out)
    for name in args.only or [*HEADS, FEDAVG]:
        at = place(out, name)
        if (told := at.with_suffix(".json")).exists():
            continue
        shutil.rmtree(at, ignore_errors=True)
        if name == FEDAVG:
            target = json.loads(place(out, TARGET).with_suffix(".json").read_text())["top1"]
            found = fedavg(at, out, programs, target, args.rounds)
        else:
            found = session(at, out, programs, HEADS[name])
        told.write_text(json.dumps(found))
    (out / "table.md").write_text(f"{table(out)}\n")
    print(table(out))


if __name__ == "__main__":
    main()
