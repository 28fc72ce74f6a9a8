"""Statistics that no rows have, made of honest ones: every way breaks one necessary condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from afltool.math.blas import length
from afltool.values.statistics import Statistics

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
