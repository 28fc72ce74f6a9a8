"""What strangers send that is no damage: pipes and devices in a file's place, arrays and weights of
odd forms, names that are escape sequences, and terminals of every kind."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from bench import COMMAND, REFUSALS, Bench
from typer.testing import CliRunner

from afltool.cli.app import app
from afltool.errors import InputError
from afltool.sources.backbones.weights_files import check_types, read_state
from afltool.sources.images.pixels import decode, read_bytes

Files = dict[str, Path]


# ---------------------------------------------------------------- no files


def no_files(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A pipe, /dev/zero, a folder, 3 GB of zeros and a path with NUL where a file is expected."""
    for name, (suffix, args) in _readers(files, work).items():
        for kind, make in _KINDS.items():
            path = work / f"{name}-{kind}{suffix}"
            make(path)
            bench.inside(f"{kind} as {name}", args(path))
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
    for kind, make in _KINDS.items():  # without the rest of extract: PyTorch alone takes 1 GB
        path = work / f"{kind}.png"
        make(path)
        bench.attempt(f"{kind} as an image", lambda path=path: decode(read_bytes(str(path)), "x"))
        bench.attempt(f"{kind} as weights", lambda path=path: read_state(path))
    for text in (b"\0\n", b"\xff\n", b"y\n" * 1_100_000, b"x" * 10**6):
        bench.attempt(f"{text[:8]!r} on stdin", lambda text=text: _refused(["verify", "-"], text))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 * 10**9)


_KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "dev-zero": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "gigabytes": _sparse,
}


def _readers(files: Files, work: Path) -> dict[str, tuple[str, Callable[[Path], list[Any]]]]:
    """Every option that names a file from outside."""
    out = ["-o", work / "o.h5", "--overwrite"]
    extract = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", 32, *out]
    dealt = ["partition", files["features-int16"], "--scheme", "file", *out, "--table"]
    x = files["input-x.npy"]
    return {
        "labels": (".txt", lambda p: ["import", x, "--labels", p, *out]),
        "npy labels": (".npy", lambda p: ["import", x, "--labels", p, *out]),
        "classes": ("", lambda p: ["import", files["input-train.npz"], "--classes", p, *out]),
        "npz": (".npz", lambda p: ["import", p, *out]),
        "npy": (".npy", lambda p: ["import", p, "--labels", files["input-labels.txt"], *out]),
        "safetensors": (".safetensors", lambda p: ["import", p, *out]),
        "parquet": (".parquet", lambda p: ["import", p, *out]),
        "csv": (".csv", lambda p: [*dealt, p]),
        "json": (".json", lambda p: [*dealt, p]),
        "toml": (".toml", lambda p: ["run", p, "-o", work / "run"]),
        "table of images": (".csv", lambda p: [*extract, "--data", f"table:{p}"]),
        "metrics": (".json", lambda p: ["plot", "confusion", p, "-o", work / "p.png"]),
    }


def _refused(args: list[Any], given: bytes) -> str:
    """The installed command with ``given`` on stdin; it must refuse with a message."""
    done = subprocess.run([COMMAND, *args], input=given, capture_output=True, check=False)
    if done.returncode not in REFUSALS or b"Traceback" in done.stderr or not done.stderr:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-300:]!r}")
    return "refused"


# ---------------------------------------------------------------- odd arrays and weights


def odd_arrays(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Headers of .npy and .npz of every odd form: shapes, types, nesting, digits, quotes."""
    sides = [
        "-1",
        "0",
        "2",
        "3",
        "1" * 30,
        "9" * 5000,
        "2.5",
        "True",
        "'2'",
        "(2,)",
        "2**9",
        "None",
    ]
    types = [
        "'<f8'",
        "'|O'",
        "'<U9'",
        "'|V3'",
        "[('a','<f8')]",
        "'<c16'",
        "'?'",
        "'<M8[s]'",
        "5",
        "'",
    ]
    for i in range(tries):
        shape = ", ".join(draw.choice(sides) for _ in range(draw.randrange(4)))
        depth = draw.choice([0, 0, 0, 50, 3000])
        header = (
            f"{{'descr': {'[' * depth}{draw.choice(types)}{']' * depth}, "
            f"'fortran_order': {draw.choice(['False', 'True', '1', 'x'])}, 'shape': ({shape},)}}"
        )[: draw.choice([None, 20, 40])]
        data = _npy(header, bytes(draw.choice([0, 7, 48])))
        path = work / f"x{draw.choice(['.npy', '.npz'])}"
        if path.suffix == ".npz":
            _npz(path, data, draw)
            args = ["import", path]
        else:
            path.write_bytes(data)
            args = ["import", path, "--labels", files["input-labels.txt"]]
        bench.inside(
            f"{path.suffix} {i}: {header[:80]}", [*args, "-o", work / "o.h5", "--overwrite"]
        )


def _npy(header: str, data: bytes) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


def _npz(path: Path, data: bytes, draw: Random) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_LZMA])) as archive:
        for name in draw.choice([("x.npy", "y.npy"), ("x", "y"), ("x.npy",), ("x.npy", "y.npy")]):
            archive.writestr(name, data)
    if draw.random() < 0.4:  # bits of the archive itself: encryption, methods, sizes
        found = bytearray(path.read_bytes())
        for _ in range(3):
            found[draw.randrange(min(60, len(found)))] ^= 1 << draw.randrange(8)
        path.write_bytes(found)


def odd_weights(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """One tensor of a network's weights replaced by something of another form; read and loaded as
    extract does, without its network: PyTorch alone takes most of 1 GB."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    state = module.state_dict()
    changes: dict[str, Callable[[Any], Any]] = {
        "sparse": lambda t: t.to_sparse(),
        "meta": lambda t: t.to("meta"),
        "complex": lambda t: t.to(torch.complex64),
        "integers": lambda t: t.long(),
        "another shape": lambda t: t[None],
        "empty": lambda t: t.flatten()[:0],
        "a list": lambda t: t.tolist(),
        "None": lambda t: None,
    }

    def load() -> None:
        given = read_state(work / "w.pth")
        check_types(module, given, "w.pth")
        try:
            module.load_state_dict(given)
        except RuntimeError as error:  # torch refuses shapes itself, and extract says it
            raise InputError(f"w.pth: {error}") from None

    for kind, change in changes.items():
        for name in ("0.weight", "1.running_var"):
            torch.save({**state, name: change(state[name])}, work / "w.pth")
            bench.attempt(f"{kind}: {name}", load, says="w.pth")
    for key in (1, (), None, b"0.weight"):
        torch.save({**state, key: state["0.bias"]}, work / "w.pth")
        bench.attempt(f"the key {key!r}", load, says="w.pth")


# ---------------------------------------------------------------- names and terminals


def hostile_names(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Names of clients, classes and backbones that are escape sequences, markup, formulas, or half
    a character: what is printed has no control character but the newlines of afltool itself."""
    import afltool

    parts = [
        *("\x1b[31m", "\x1b]0;x\x07", "\n", "\r", "\x9b", "\u202e", "\x00", "\udcff", "\ud800"),
        *("[bold]", "[/]", "$\\frac$", "é", "\u2028", "a", " ", "/", "..", "%s", "{x}", "\\"),
    ]
    rng = np.random.default_rng(0)
    np.savez(work / "x.npz", x=rng.normal(size=(20, 3)), y=np.arange(20) % 2)
    for i in range(tries):
        a, b, client = ("".join(draw.choices(parts, k=draw.randrange(1, 5))) for _ in range(3))

        def road(a: str = a, b: str = b, client: str = client) -> None:
            names = [f"0{a}", f"1{b}"]
            train = afltool.import_embeddings(
                work / "x.npz", work / "x.h5", classes=names, backbone=a, overwrite=True
            )
            stats = afltool.local_stats(
                train, "linear", work / "s.h5", client=client, sum=True, overwrite=True
            )
            head = afltool.solve(stats, work / "h.h5", overwrite=True, head_options={"ridge": 1.0})
            for args in (["info", train], ["info", stats], ["info", stats, "--json"],
                         ["evaluate", head, train], ["local-stats", train, "--head", a],
                         ["aggregate", stats, stats, "-o", work / "t.h5", "--overwrite"],
                         ["partition", train, "--scheme", b], [a]):  # fmt: skip
                done = CliRunner().invoke(app, [str(one) for one in args])
                logging.getLogger("afltool").handlers = []  # its stream is closed
                if done.exception is not None and not isinstance(done.exception, SystemExit):
                    raise RuntimeError(f"{args}: {done.exception!r}")
                odd = {c for c in done.stdout + done.stderr if not c.isprintable()} - {"\n"}
                if odd:
                    raise RuntimeError(f"{args} printed {odd}")

        bench.attempt(f"names {i}: {a!r} {b!r} {client!r}", road)


def odd_terminals(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Closed, full and broken streams, and encodings that lack what is printed."""
    head, stats = files["head-linear-1"], files["statistics-one-client"]
    commands = {
        "-h": 0, f"aggregate {stats} -o {work}/t.h5 --overwrite": 0, f"info {work}/none": 3,
        "solve -h": 0, f"info {head}": 0, f"info {head} --json": 0,
    }  # fmt: skip
    around = {
        "{} <&-": None, "{} >&-": None, "{} 2>&-": None, "{} <&- >&- 2>&-": None,
        "{} > /dev/full": 3, "{} | true": 141, "{} | head -1": 141, "{} 2>&1 | true": 141,
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {}": None, "PYTHONIOENCODING=ascii {}": None,
        "SLURM_JOB_ID=² {} --help": 0, "COLUMNS=1 {}": None, "TERM=dumb {}": None,
    }  # fmt: skip
    for line, code in list(commands.items())[:tries]:
        for way, other in around.items():

            def run(way: str = way, line: str = line, codes: set[Any] = {code, other}) -> None:  # noqa: B006
                script = f"set -o pipefail; {way.format(f'{COMMAND} {line}')}"
                done = subprocess.run(
                    ["bash", "-c", script], capture_output=True, timeout=60, check=False
                )
                if done.returncode not in codes or b"Traceback" in done.stderr:
                    raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-300:]!r}")

            bench.attempt(way.format(f"afltool {line}"), run)
