"""Necessary conditions of statistics: honest ones always meet them, forged ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import HEADS, absorb, gathered, total
from test_bad_input import INPUT, refused

from afltool.errors import (
    AflError,
    CorruptFileError,
    InvalidDataError,
    MismatchError,
    NumericalError,
)
from afltool.files.hdf5 import read_file, write_file
from afltool.files.statistics import load_statistics, save_statistics
from afltool.heads import invariants, make_head
from afltool.math.blas import length
from afltool.math.gram import FixedPoint
from afltool.math.pairwise import pairwise_total
from afltool.values.names import Phase
from afltool.values.statistics import ArraySpec, Client, ClientId, Statistics, Sum

MADE_BY = {"stage": "forged", "options": {}, "inputs": {}}
MORE = {
    name: HEADS[name]
    for name in (
        "linear", "linear intercept", "random-features", "deepafl", "deepafl incremental",
        "deepafl fixed", "deepafl (88)", "safle hybrid", "softmax", "softmax random",
        "discriminant nearest-mean", "discriminant naive-bayes", "discriminant qda",
        "discriminant lda",
    )
}  # fmt: skip
BLOCKS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "largest": lambda rng, n, d: rng.choice([-32767, 32767], (n, d)) / 512,
    "one value": lambda rng, n, d: np.full((n, d), 0.1),
    "zeros": lambda rng, n, d: np.zeros((n, d)),
    "sparse": lambda rng, n, d: rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.05),
    "scales": lambda rng, n, d: rng.normal(size=(n, d)) * np.logspace(-2, 1, d),
}


def phases(name, bits, block="normal"):
    """Of clients of few rows and many their statistics in each phase, and the sum of these."""
    rng, classes, d = np.random.default_rng(0), 3, 6
    head, parts = make_head(name.split()[0], MORE[name]).bind(d, classes), []
    for n in (0, 1, 2, 40):
        values = BLOCKS[block](rng, n, d)
        X = values.astype(np.float32)
        if bits is not None:
            X = FixedPoint(np.rint(values * 2.0**bits).astype(np.int16), bits)
        parts.append((X, rng.integers(0, classes, n) if n != 2 else np.full(n, 1)))
    while head.phase() is not None:
        specs = head.array_specs(bits)
        found = [
            replace(gathered(head, *part, str(k)), specs=specs) for k, part in enumerate(parts)
        ]
        yield found, total(found)
        try:
            head = absorb(head, total(found)).bind(d, classes)
        except AflError:
            return  # these rows do not determine a head; what they sum to is honest all the same


REAL = [(name, None) for name, own in MORE.items() if own.get("compute") != "fixed"]


@pytest.mark.parametrize(("name", "bits"), [*((name, 9) for name in MORE), *REAL])
def test_honest_statistics_meet_every_condition(name, bits):
    """Of few rows and many, in every phase; those of clients, of their sum, and less a client."""
    hard = ("normal", "one value", "scales") if bits is None else ("largest", "sparse", "zeros")
    for block in hard:
        for found, whole in phases(name, bits, block):
            for s in [*found, whole, whole - found[3], whole - found[1] - found[3]]:
                invariants.check(s)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 9), st.integers(0, 14))
def test_honest_integers_of_any_size_meet_them(seed, n, d, size):
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**size), 2**size + 1, (n, d)).clip(-32767, 32767).astype(np.int16)
    values *= rng.random(d) < 0.7
    head = make_head("linear", {"intercept": bool(seed % 2)}).bind(d, 4)
    s = head.gather([(FixedPoint(values, 9), rng.integers(0, 4, n))])[0]
    invariants.check(replace(s, specs=head.array_specs(9)))


def test_the_pairwise_law_meets_them(road):
    parts = [load_statistics(p) for p in sorted(road.stats.iterdir())]
    for gamma in (1e-3, 1.0, 1e6):
        known = [
            replace(p, clients={w: replace(c, gamma=gamma) for w, c in p.clients.items()})
            for p in parts
        ]
        invariants.check(pairwise_total(known))


Case = tuple[str, Statistics]


def impossible(s: Statistics, draw: np.random.Generator) -> Iterator[Case]:
    """(what, statistics) for each condition on the arrays that ``s`` has; entries are drawn."""
    for name, array in s.arrays.items():
        flat = int(draw.integers(array.size))
        for value in [2**62] if array.dtype.kind == "i" else [np.nan, np.inf, -np.inf, 1e308]:
            yield f"{name}[{flat}] = {value}", _with(s, **{name: _put(array, flat, value)})
    yield "no rows", _of_rows(s, np.zeros_like(s.class_counts))
    yield "2^62 rows in a class", _of_rows(s, _put(s.class_counts, 0, 2**62))
    a = s.arrays
    if "gram" in a and a["gram"].shape == (length(len(a["cross"])),):
        yield from _gram(s, draw)
    if "squares" in a:
        yield "squares below 0", _with(s, squares=-a["squares"])
        yield "no squares", _with(s, squares=np.zeros_like(a["squares"]))
    if "grams" in a:
        yield "grams of zeros", _with(s, grams=np.zeros_like(a["grams"]))
        yield "grams below 0", _with(s, grams=-a["grams"])
    if s.phase == "class-sums":
        yield "cross 1,000,000 times as large", _with(s, cross=1_000_000 * a["cross"])
    if "labels" in a:
        yield from _codes(s, draw)
    if "histogram" in a:
        flat = int(draw.integers(a["histogram"].size))
        for value in (a["histogram"].flat[flat] + 1, -1):
            yield f"histogram {value}", _with(s, histogram=_put(a["histogram"], flat, value))
        yield "1,000 times the rows", _of_rows(s, 1000 * s.class_counts)


def _gram(s: Statistics, draw: np.random.Generator) -> Iterator[Case]:
    gram, cross = s.arrays["gram"], s.arrays["cross"]
    d = len(cross)
    ends = np.arange(d) * (np.arange(d) + 3) // 2
    j, i = int(draw.integers(d)), int(draw.integers(1, d))
    largest = gram[ends].max()
    yield "a negative diagonal", _with(s, gram=_put(gram, ends[j], -largest))
    yield "a gram of zeros", _with(s, gram=np.zeros_like(gram))
    beyond = [ends[i] - 1 - int(draw.integers(i)), 3 * largest * int(draw.choice([-1, 1]))]
    yield "a product beyond Cauchy and Schwarz", _with(s, gram=_put(gram, *beyond))
    products = gram.copy()
    products[ends[j]] = 0
    yield "a feature without squares", _with(s, gram=products)
    yield "a gram of another sign", _with(s, gram=-gram)
    labeled = s.phase.split("-")[0] != "block"
    if labeled:
        yield "cross 1,000 times as large", _with(s, cross=1000 * cross)
    if labeled and gram.dtype.kind == "i":
        yield "squares beyond int16", _with(s, gram=_put(gram, ends[j], s.rows * 2**30 + 2))


def _codes(s: Statistics, draw: np.random.Generator) -> Iterator[Case]:
    labels, pairs = s.arrays["labels"], s.arrays["pairs"]
    at, p = int(draw.integers(labels.size)), int(draw.integers(pairs.size))
    yield "a label more", _with(s, labels=_put(labels, at, labels.flat[at] + 1))
    yield "a label below 0", _with(s, labels=_put(labels, at, -1))
    yield "pairs of more rows", _with(s, pairs=_put(pairs, p, s.rows + 1))
    yield "pairs below 0", _with(s, pairs=_put(pairs, p, -1))
    yield "1,000 times the rows", _of_rows(s, 1000 * s.class_counts)


def _with(s: Statistics, **arrays: np.ndarray) -> Statistics:
    return replace(s, arrays={**s.arrays, **arrays})


def _put(array: np.ndarray, at: int, value: float) -> np.ndarray:
    found = array.copy()
    found.flat[at] = value
    return found


def _of_rows(s: Statistics, counts: np.ndarray) -> Statistics:
    """Other class counts, with clients that have as many rows."""
    rows = sum(map(int, counts))
    (first, client), *rest = s.clients.items()
    others = {who: replace(one, rows=0) for who, one in rest}
    return replace(s, class_counts=counts, clients={first: replace(client, rows=rows), **others})


@pytest.mark.parametrize("name", MORE)
def test_statistics_that_no_rows_have(name, tmp_path):
    draw = np.random.default_rng(1)
    for _, whole in phases(name, 9):
        if (whole.phase.number or 0) > 1:
            return  # arrays like those of the layer or the round before
        for what, forged in impossible(whole, draw):
            path = save_statistics(tmp_path / "forged.h5", forged, MADE_BY)
            with pytest.raises(InvalidDataError, match=r"forged\.h5.*rows") as raised:
                load_statistics(path)
            assert str(path) in str(raised.value), what


def test_the_command_names_the_client_and_the_file(road, tmp_path, cli):
    """Between honest clients, whoever reads it: nothing is written."""
    honest = sorted(road.stats.iterdir())
    whole = load_statistics(honest[2])
    for number, (what, forged) in enumerate(impossible(whole, np.random.default_rng(0))):
        path = save_statistics(tmp_path / f"{number}.h5", forged, MADE_BY)
        out = tmp_path / "o.h5"
        name = "rows; expected" if "2^62 rows" in what else "client 2 (partition"
        refused(cli("aggregate", *honest[:2], path, "-o", out), INPUT, path, name)
        assert not out.exists()
        if number < 2:
            refused(cli("solve", path, "-o", out), INPUT, path, name)
            refused(cli("solve", road.total, "--validate", path, "-o", out), INPUT, path, name)
            refused(cli("verify", path), INPUT, path, name)


def test_a_header_that_says_nonsense_of_an_array_is_refused(road, tmp_path):
    header, arrays = read_file(road.total, "statistics")
    wrong = {"per_row": "9"}, {"per_row": -1}, {"shape": [1]}, {"cells": [0, 0]}, {"square": 1}
    said_of_it = [{}, {"kind": "sum"}, *({"kind": "int", **one} for one in wrong)]
    for number, said in enumerate([["gram"], *({"gram": one} for one in said_of_it)]):
        path = tmp_path / f"{number}.h5"
        write_file(path, "statistics", {**header, "arrays": said}, arrays)
        with pytest.raises(CorruptFileError, match="in its header arrays"):
            load_statistics(path)


def test_what_is_said_of_an_array_that_it_does_not_fit_is_no_error_of_python():
    """Whoever has the head compares both; here the first condition that applies is told."""
    arrays = {
        "a": np.array(3), "b": np.arange(4), "c": np.ones((2, 3)), "d": np.zeros((2, 2, 3), int),
    }  # fmt: skip
    for kind, square, rows_of, by_class, cells in product(
        ("count", "real"), (False, True), ("", *arrays), (False, True), ((), (0,), (1, 2), (7,))
    ):
        spec = ArraySpec((), kind, 1.0, square, rows_of, by_class, cells)
        specs = {name: replace(spec, shape=a.shape) for name, a in arrays.items()}
        s = Statistics(Phase("x"), arrays, np.array([2, 0, 5]), specs=specs)
        with suppress(InvalidDataError):
            invariants.check(s)


def test_statistics_that_say_other_things_of_their_arrays_are_not_added():
    one = Statistics(Phase("gram"), {"g": np.zeros(1, int)}, np.array([1]))
    said = [replace(one, specs={"g": ArraySpec((1,), "int", most)}) for most in (1, 2)]
    with pytest.raises(MismatchError, match="do not belong to the others"):
        Sum(said[0]).add(said[1])
    assert Sum(said[0]).add(one).result().specs == said[0].specs


def test_sums_of_counts_are_bounded():
    s = Statistics(Phase("gram"), {"gram": np.zeros(1, np.int64)}, np.array([2**52]))
    total = Sum(s).add(s)
    with pytest.raises(NumericalError, match="more than 2\\^53"):
        total.add(s)


def test_taking_everybody_out_leaves_zeros():
    """(a + b) − b − a = 0, although reals are rounded."""

    def one(name, value, rows):
        who = {ClientId(name): Client(rows)}
        return Statistics(Phase("gram"), {"gram": np.array([value])}, np.array([rows]), clients=who)

    a, b = one("a", 0.1, 1), one("b", 0.7, 2)
    assert ((0.1 + 0.7) - 0.7) - 0.1 != 0, "the premise: rounding leaves something"
    assert (a + b - b - a).arrays["gram"].tolist() == [0.0]
