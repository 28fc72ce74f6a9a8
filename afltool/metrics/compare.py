"""Two heads on the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """McNemar's exact test: are two heads right on the same rows equally often?

    ``first``, ``second`` bool (n,): whether each head is right. Take the rows where only one head
    is right. If both heads are equally good, the number of these rows where the first one is right
    follows Binomial(rows, ½); the p-value is two-sided. McNemar, Psychometrika 12, 1947.
    """
    from scipy.stats import binomtest

    only_first = int(np.count_nonzero(first & ~second))
    only_second = int(np.count_nonzero(second & ~first))
    differ = only_first + only_second
    p = binomtest(only_first, differ).pvalue if differ else 1.0
    return {"only_this": only_first, "only_other": only_second, "p_value": float(p)}
