"""Fuzzing (hypothesis) of what people and other programs write: headers, TOML,
tables, embeddings. Whatever it says, it is read or refused with a message."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bench import Bench, content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afltool.heads import make_head
from afltool.runs.config import RunConfig, read_config

Files = dict[str, Path]
NUMBERS = st.integers() | st.floats() | st.sampled_from([-1, 0, 2**63, 10**400, 1e308])
PLAIN = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
VALUES = st.recursive(
    PLAIN, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=4,
)  # fmt: skip


def _many(tries: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """``tries`` examples, the same in every run."""
    quiet = settings(
        max_examples=tries, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    quiet(given(strategy)(check))()


# ---------------------------------------------------------------- headers


def headers(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A field of a header replaced, dropped or added; all checksums of the file are right."""
    from damage import forge

    from afltool.files.hdf5 import read_header

    names = sorted(n for n in files if not n.startswith("input"))
    known = {name: read_header(files[name]) for name in names}

    def check(drawn: tuple[str, float, str, Any]) -> None:
        name, where, how, value = drawn
        header = {k: v for k, v in copy.deepcopy(known[name]).items() if k != "kind"}
        places = list(_places(header, ()))
        *path, last = places[int(where * len(places))]
        inner: Any = header
        for step in path:
            inner = inner[step]
        if how == "replace":
            inner[last] = value
        elif how == "drop":
            del inner[last]
        elif isinstance(inner, dict):
            inner["more"] = value
        try:
            forged = forge(files[name], work / "forged.h5", whole=header)
        except (ValueError, OverflowError, UnicodeError):
            return  # no JSON
        what = f"{name}, {how} {'.'.join(map(str, [*path, last]))} {value!r}"
        bench.attempt(what, lambda: content(forged))
        for args in _commands(files, name, forged, work / "out"):
            bench.inside(f"{what}, {args[0]}", args)

    shares = st.floats(0, 1, exclude_max=True)
    hows = st.sampled_from(["replace", "drop", "add"])
    _many(tries, st.tuples(st.sampled_from(names), shares, hows, VALUES), check)


def _places(value: Any, path: tuple[Any, ...]) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in inner:
        yield (*path, key)
        if isinstance(entry, (dict, list)):
            yield from _places(entry, (*path, key))


def _commands(files: Files, name: str, path: Path, out: Path) -> list[list[Any]]:
    """Every command that reads such a file, as briefly as it can."""
    kind, train, over = name.split("-")[0], files["features-int16"], ["--overwrite"]
    stats = ["--head", "linear", "--sum", "-o", f"{out}.h5", *over]
    head0 = files["head-linear-0"]
    return {
        "features": [["local-stats", path, "--client", "a", *stats],
                     ["evaluate", files["head-linear-1"], path],
                     ["partition", path, "--scheme", "iid", "--clients", 2, "-o", f"{out}.h5",
                      *over]],
        "partition": [["local-stats", train, "--partition", path, "--held-out", f"{out}-v.h5",
                       *stats]],
        "statistics": [["aggregate", path, "-o", f"{out}.h5", *over],
                       ["solve", path, "-o", f"{out}.h5", *over],
                       ["solve", path, "--head", head0, "-o", f"{out}.h5", *over]],
        "head": [["local-stats", train, "--client", "a", "--sum", "--head", path, "-o",
                  f"{out}.h5", *over], ["evaluate", path, files["features-test"]]],
    }[kind] + [["info", path], ["info", path, "--json"]]  # fmt: skip


# ---------------------------------------------------------------- TOML


def toml(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Run configurations: options with any value, bytes changed, and no TOML at all."""
    text = files["input-run.toml"].read_bytes()
    keys = [*_flat(tomllib.loads(text.decode())), "clients", "ridge", "fraction-bits", "alpha",
            "held-out", "layers", "width", "seed", "buckets", "participation", "x"]  # fmt: skip
    lines = st.tuples(st.sampled_from(keys), VALUES).map(lambda kv: f"\n{kv[0]} = {_toml(kv[1])}")
    pieces = lines.map(str.encode) | _mutated(text) | st.binary(max_size=60)

    def check(piece: bytes) -> None:
        path = work / "run.toml"
        path.write_bytes(piece)

        def read() -> None:
            config = RunConfig(**read_config(path))
            if config.first_head is None:
                make_head(config.own.head, config.head_options)

        bench.attempt(repr(piece), read)

    _many(tries, pieces, check)


def _flat(tree: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in tree.items():
        found += _flat(value) if isinstance(value, dict) else [key]
    return found


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return '""' if value is None else json.dumps(value)


# ---------------------------------------------------------------- tables and embeddings


def tables(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """CSV and parquet tables of rows and clients, with bytes changed, cut, doubled, or noise;
    as `partition --table` reads them."""
    import pandas as pd

    pd.read_csv(files["input-table.csv"]).to_parquet(work / "table.parquet")
    good = [files["input-table.csv"], work / "table.parquet"]
    train = files["features-int16"]

    def check(drawn: tuple[Path, bytes]) -> None:
        like, data = drawn
        path = work / f"damaged{like.suffix}"
        path.write_bytes(data)
        for more in (["--scheme", "file"], ["--scheme", "by-attribute", "--column", "client"]):
            args = ["partition", train, "--table", path, *more, "-o", work / "o.h5", "--overwrite"]
            bench.inside(f"{like.suffix} {data[:60]!r}… {len(data)} bytes", args)

    every = [
        st.tuples(st.just(path), _mutated(path.read_bytes()) | st.binary(max_size=80) | _texts())
        for path in good
    ]
    _many(tries, st.one_of(every), check)


def _texts() -> st.SearchStrategy[bytes]:
    """Small tables of the right form with any values."""
    cells = st.text(max_size=5) | st.integers().map(str) | st.just("row/000")
    rows = st.lists(st.tuples(cells, cells), max_size=4)
    lines = rows.map(lambda r: "row,client\n" + "".join(f"{a},{b}\n" for a, b in r))
    return lines.map(lambda text: text.encode("utf-8", "replace"))


def embeddings(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """.npz, .npy, labels and class lists, with bytes changed, cut, doubled, or noise; as `import`
    reads them. A changed .npz is refused or gives the same features."""
    from file_faults import _expected, _use

    names = ["input-train.npz", "input-x.npy", "input-labels.txt", "input-classes.txt"]

    def check(drawn: tuple[str, bytes]) -> None:
        name, data = drawn
        path = work / f"damaged{files[name].suffix}"
        path.write_bytes(data)
        expected = _expected(files, name) if name.endswith("npz") else ...
        args, result = _use(files, name, path, work / "imported.h5")
        bench.inside(f"{name} {len(data)} bytes", args, result, expected)

    every = [
        st.tuples(st.just(name), _mutated(files[name].read_bytes()) | st.binary(max_size=80))
        for name in names
    ]
    _many(tries, st.one_of(every), check)


@st.composite
def _mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """A few bytes of the beginning, the end or anywhere replaced, dropped or doubled; or a cut."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(200, len(found) - 1)) | st.integers(0, len(found) - 1))
        at = draw(st.sampled_from([at, len(found) - 1 - at]))
        how = draw(st.sampled_from(["byte", "bytes", "drop", "double", "cut"]))
        if how == "byte":
            found[at] = draw(st.integers(0, 255))
        elif how == "bytes":
            found[at:at] = draw(st.binary(min_size=1, max_size=6))
        elif how == "drop":
            del found[at : at + draw(st.integers(1, 40))]
        elif how == "double":
            found[at:at] = found[at : at + draw(st.integers(1, 40))]
        else:
            del found[at:]
        if not found:
            break
    return bytes(found)
