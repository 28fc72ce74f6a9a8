"""P-values below a table: every row against the first one, on the same test rows.

All seeds of a study test the same rows, so rows must not be counted once for each seed. Heads that
are the same are one measurement, whatever the seed; for others the seeds are clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import MismatchError, UsageError
from ..files.features import open_features
from ..files.heads import check_fits, load_solved_head
from ..heads.scoring import score
from ..math.metrics.figures import SAMPLES, mcnemar, paired_bootstrap
from .cells import SEEDS
from .crosstab import Crosstab
from .frames import source_of
from .published import plain
from .results import Results


def tests(made: Crosstab, name: str, results: Results) -> list[str]:
    """The p-value of every row against the first one, column by column, in words."""
    rows = [row for row in made.texts.index if row[0] != "published"]
    if len(rows) < 2:
        raise UsageError("--test compares every row with the first; the table has one row")
    if set(made.entries["figure"]) != {"top1"}:
        raise UsageError("--test compares top1")
    heads = {
        source_of(one): (cell.solved(results.folder, one), cell.test_rows(results.folder))
        for cell, one in results.done
    }
    right = cache(lambda source: _right(*heads[source]))
    (kind, first), *others = rows
    lines = []
    for heading in made.headings:
        ours = made.of(first, heading, kind)
        for their_kind, other in others:
            pairs = _pairs(ours, made.of(other, heading, their_kind))
            words, p = _paired_t(pairs) if name == "t" else _mcnemar(pairs, heads, right)
            shown = f"not defined ({p})" if isinstance(p, str) else f"{p:.3g}"
            lines.append(f"{words}, {heading}: {other} against {first}: p = {shown}")
    return lines


def _pairs(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Results of equal seeds side by side, each pair of measurements once.

    Seeds are equal where those that both methods have, and that vary, are equal. Of a table beside
    there may be no more than a seed, which is then that of the partition.
    """
    both = pd.concat([ours, theirs]).reindex(columns=[*SEEDS, "top1", "source"])
    names = [one for one in SEEDS if both[one].notna().all() and both[one].map(plain).nunique() > 1]
    seeds = both[names or ["partition_seed"]]
    seeds = seeds if names else seeds.fillna({"partition_seed": both["seed"]})
    keys: Any = [tuple(map(plain, one)) for one in seeds.itertuples(index=False)]
    both = both.assign(seeds=keys)
    both = both[["seeds", "top1", "source"]]
    pairs = both.iloc[: len(ours)].merge(both.iloc[len(ours) :], on="seeds")
    known = pairs["source_x"].notna() & pairs["source_y"].notna()
    return pairs[~known | ~pairs.duplicated(["source_x", "source_y"])]


def _paired_t(pairs: pd.DataFrame) -> tuple[str, float | str]:
    """Student's t of the differences of equal seeds."""
    from scipy.stats import ttest_rel

    words = "paired t over seeds"
    x, y = (pairs[name].astype(float) for name in ("top1_x", "top1_y"))
    if len(pairs) < 2:
        return words, "it needs two different results of equal seeds"
    if (x - y).nunique() == 1:
        return words, "the difference has no deviation"
    return words, float(ttest_rel(x, y).pvalue)


def _mcnemar(
    pairs: pd.DataFrame, heads: Collection[Any], right: Callable[[Any], tuple[Any, Any]]
) -> tuple[str, float | str]:
    """McNemar's exact test of two heads; of several seeds a bootstrap of rows and seeds."""
    words, each = "McNemar", [*zip(pairs["source_x"], pairs["source_y"], strict=True)]
    if not each:
        return words, "no results of equal seeds"
    if any(source not in heads for pair in each for source in pair):
        return words, "there is no head file for each result"
    found = [tuple(map(right, pair)) for pair in each]
    for _, ids in (one for pair in found for one in pair):
        if not np.array_equal(ids, found[0][0][1]):
            raise MismatchError(
                "the heads were tested on different rows, by their row ids; --test mcnemar "
                "compares heads on the same rows: choose with --where"
            )
    both = {(a.tobytes(), b.tobytes()): (a, b) for (a, _), (b, _) in found}
    if len(both) == 1:
        return words, float(mcnemar(*next(iter(both.values())))["p_value"])
    differences = np.stack([a.astype(np.int8) - b.astype(np.int8) for a, b in both.values()])
    seeds, rows = differences.shape
    words = f"paired bootstrap of {rows:,} rows and {seeds} seeds, {SAMPLES:,} samples"
    return words, paired_bootstrap(differences)


def _right(head: Path, rows: Path) -> tuple[Any, Any]:
    """Which test rows a head predicts right, in the order of their row ids; and these."""
    solved = load_solved_head(head)
    with open_features(rows) as features:
        check_fits(head, solved.header, features)
        found = score(solved.head, features.blocks(), features.labels, len(features.classes))
        right, ids = found.predicted == features.labels, features.row_ids
    order = np.argsort(ids, kind="stable")
    return right[order], ids[order]
