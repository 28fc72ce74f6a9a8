"""How far apart the classes lie in some features: CSR, IFS and DM of rows that arrive in blocks.

Tang et al., "DeepAFL", ICLR 2026, appendix R.2 and table 31. The paper says each measure in one
sentence; docs/decisions/deepafl.md says how these sentences are read here.
"""

from __future__ import annotations

import numpy as np

from ...values.arrays import F64, I64, Array
from ...values.names import MEASURES


class Separability:
    """Means and scatters of the classes; each block of rows is added, none is kept.

    With n_c rows, mean μ_c and scatter S_c = Σ‖x − μ_c‖² of each of the C classes that have rows,
    N = Σn_c, S = ΣS_c, μ the mean of all rows and μ̄ the mean of the C means:

        CSR = (S / N) / (mean of ‖μ_a − μ_b‖² over all pairs a ≠ b)
        IFS = (S / (N − C)) / (Σ‖μ_c − μ̄‖² / C)
        DM  = S / Σ n_c ‖μ_c − μ‖²

    Lower is better. Memory: C·(m + 2) float64 for m features, whatever the number of rows.
    """

    def __init__(self, classes: int, width: int) -> None:
        self.counts = np.zeros(classes, dtype=np.int64)
        self.means: F64 = np.zeros((classes, width))
        self.scatters: F64 = np.zeros(classes)

    @property
    def width(self) -> int:
        """The number of features m."""
        return int(self.means.shape[1])

    def add(self, X: Array, y: I64) -> None:
        """Add rows X (n, m), float32 or float64, of the classes y (n,).

        Means and scatters of two parts are joined by Chan, Golub and LeVeque's formula ("Updating
        formulae and a pairwise algorithm for computing sample variances", 1982), which cancels no
        digits where features lie far from zero.
        """
        order = np.argsort(y, kind="stable")
        present, starts, n = np.unique(y[order], return_index=True, return_counts=True)
        if not len(present):
            return
        rows: F64 = X[order].astype(np.float64)
        means = np.add.reduceat(rows, starts, axis=0) / n[:, None]
        rows -= np.repeat(means, n, axis=0)
        scatters = np.add.reduceat(np.einsum("ij,ij->i", rows, rows), starts)
        before = self.counts[present]
        moved, share = means - self.means[present], n / (before + n)
        self.scatters[present] += scatters + before * share * np.einsum("ij,ij->i", moved, moved)
        self.means[present] += share[:, None] * moved
        self.counts[present] += n

    def figures(self) -> dict[str, float | None]:
        """The three measures by name; None where the rows do not determine one.

        IFS needs more rows than classes; all three need two classes whose means differ.
        """
        seen = self.counts > 0
        n, means, within = self.counts[seen], self.means[seen], float(self.scatters.sum())
        classes, total = len(n), int(n.sum())
        apart = float(((means - means.mean(axis=0)) ** 2).sum()) if classes else 0.0
        if classes < 2 or apart == 0:
            return dict.fromkeys(MEASURES)
        between = float(n @ ((means - n @ means / total) ** 2).sum(axis=1))
        pairs = 2 * apart / (classes - 1)  # the mean over pairs, because Σ_{a≠b} is 2C·apart
        return {
            "csr": within / total / pairs,
            "ifs": within / (total - classes) / (apart / classes) if total > classes else None,
            "dm": within / between,
        }
