"""How sure a figure is: its interval over samples of the rows, and a test between two heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...values.arrays import F64, I64


def resampled(rows: int, samples: int, seed: int, groups: I64 | None = None) -> Iterator[F64]:
    """How often each row is in each of ``samples`` samples, float64 (n,).

    A sample draws n rows with replacement. With ``groups`` (n,) int64, numbered from 0, it draws
    whole groups instead, as many as there are, because rows of one patient are not independent.
    """
    rng = np.random.default_rng([seed, rows])
    units = rows if groups is None else int(groups.max(initial=-1)) + 1
    for _ in range(samples):
        drawn = np.bincount(rng.integers(0, units, units), minlength=units).astype(float)
        yield drawn if groups is None else drawn[groups]


INSIDE = 0.95  # the share of the samples in an interval
LEVELS = (1 - INSIDE) / 2, (1 + INSIDE) / 2


def intervals(
    figures: Mapping[str, Callable[[F64], float]], samples: Iterable[F64]
) -> dict[str, tuple[float, float]]:
    """The 95 % percentile interval of each figure over samples; NaN where no sample determines it.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    values = np.array([[of(w) for of in figures.values()] for w in samples])
    by_name = {}
    for name, column in zip(figures, values.reshape(-1, len(figures)).T, strict=True):
        known = column[~np.isnan(column)]
        ends = np.quantile(known, LEVELS) if len(known) else [np.nan] * 2
        by_name[name] = (float(ends[0]), float(ends[1]))
    return by_name


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """McNemar's exact test: are two heads right on the same rows equally often?

    ``first``, ``second`` bool (n,): whether each head is right. Take the rows where only one head
    is right. If both heads are equally good, the number of these rows where the first one is right
    follows Binomial(rows, ½); the p-value is two-sided. McNemar, Psychometrika 12, 1947.
    """
    only_first = int(np.count_nonzero(first & ~second))
    return mcnemar_of(only_first, int(np.count_nonzero(second & ~first)))


def mcnemar_of(only_first: int, only_second: int) -> dict[str, Any]:
    """`mcnemar` of the numbers of rows that only one head predicts right."""
    from scipy.stats import binomtest

    differ = only_first + only_second
    p = binomtest(only_first, differ).pvalue if differ else 1.0
    return {"only_this": only_first, "only_other": only_second, "p_value": float(p)}


SAMPLES = 10_000  # of a paired bootstrap


def paired_bootstrap(differences: NDArray[np.int8], samples: int = SAMPLES, seed: int = 0) -> float:
    """The p-value of no difference between two heads that were made with several seeds.

    ``differences`` int8 (S, n), S ≥ 2: for each seed and row +1 where only the first head is right,
    −1 where only the second one is, else 0. The statistic D is their mean. A sample draws n rows
    and, because seeds are clusters, S − 1 of the S seeds, both with replacement; a row that is
    drawn is drawn for every seed, since all of them are tested on the same rows. p is two-sided:
    the share of samples whose mean is as far from D as D is from 0, (1 + count) / (1 + samples).
    Owen, The Pigeonhole Bootstrap, Annals of Applied Statistics 1, 2007; S − 1 after Rao and Wu,
    JASA 83, 1988: with S seeds the deviation between them would come out too small.
    """
    seeds, rows = differences.shape
    rng = np.random.default_rng([seed, seeds, rows])
    patterns, times = np.unique(differences.astype(np.int64), axis=1, return_counts=True)
    ours = (seeds - 1) * int(differences.sum(dtype=np.int64))  # in units of 1 / (S (S − 1) n)
    drawn_seeds = rng.multinomial(seeds - 1, np.full(seeds, 1 / seeds), size=samples)
    far = 0
    for start in range(0, samples, _AT_ONCE):
        chosen = drawn_seeds[start : start + _AT_ONCE]
        drawn_rows = rng.multinomial(rows, times / rows, size=len(chosen))
        sums = seeds * ((drawn_rows @ patterns.T) * chosen).sum(axis=1)
        far += int(np.count_nonzero(np.abs(sums - ours) >= abs(ours)))
    return (1 + far) / (1 + samples)


_AT_ONCE = 500  # samples whose rows are drawn together
