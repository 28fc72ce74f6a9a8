"""Deals the rows of each class in shares drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np

from ...values.arrays import F64, I64
from ..common import PARTITION, Dealt, SchemeOptions, by_label, place, stream, until_min_size


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """For each class c a share p_c ~ Dirichlet(α, …, α) of its n_c rows to the K clients.

    The shuffled rows of c are cut at ⌊n_c Σ_{j≤k} p_cj + u_c⌋ with u_c uniform on [0, 1), so client
    k gets n_c·p_ck rows in the mean; without u_c the floors gather in the last client, half a row
    a class. With ``balance_cap`` classes go in turn and clients that hold at least n/K rows get
    none of the next class. Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated
    Learning", NeurIPS 2020; AFL section 4.1.
    """
    sizes = np.bincount(labels, minlength=options.n_classes)
    sizes = sizes[sizes > 0]
    shuffle, *draws = stream(options.seed, PARTITION).spawn(4)

    def draw() -> tuple[I64, I64]:
        counts = _dirichlet_counts(sizes, options, *draws)
        return counts, counts.sum(axis=0)

    counts = until_min_size(draw, options)
    cells = np.flatnonzero(counts)
    owners = np.repeat(cells % options.clients, counts.ravel()[cells])
    return place(by_label(labels, shuffle), owners), options.numbers


def _dirichlet_counts(
    sizes: I64,
    options: SchemeOptions,
    gammas: np.random.Generator,
    boosts: np.random.Generator,
    offsets: np.random.Generator,
) -> I64:
    """Rows (classes, K) of one draw, every row of every class dealt out.

    Gamma variables of shape α underflow to zero for all clients at small α, and 0/0 follows; their
    logarithms do not: log G(α) = log G(α+1) − E/α with E ~ Exp(1) (Marsaglia & Tsang, "A simple
    method for generating gamma variables", ACM TOMS 2000, section 6).
    """
    counts = np.zeros((sizes.size, options.clients), np.int64)
    held = np.zeros(options.clients, np.int64)
    # A block stays in the processor's cache; under the cap a class must see the one before it.
    block = 1 if options.balance_cap else max(1, 2**17 // options.clients)
    for start in range(0, sizes.size, block):
        part = slice(start, start + block)
        shape = counts[part].shape
        logs = np.log(gammas.standard_gamma(options.alpha + 1, shape))
        logs -= boosts.standard_exponential(shape) / options.alpha
        if options.balance_cap:
            logs[:, held >= sizes.sum() / options.clients] = -np.inf
        counts[part] = _cut(logs, sizes[part], offsets.random((shape[0], 1)))
        held += counts[part].sum(axis=0)
    return counts


def _cut(logs: F64, sizes: I64, offsets: F64) -> I64:
    """Split sizes (c,) in proportions softmax(logs) (c, K), rounded by offsets (c, 1) in [0, 1)."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    total = np.cumsum(weights, axis=1)
    cuts = np.floor(total / total[:, -1:] * sizes[:, None] + offsets).astype(np.int64)
    # x/x · n is n exactly, so only n + u rounded up to n + 1 has to be taken back.
    counts: I64 = np.diff(np.minimum(cuts, sizes[:, None]), axis=1, prepend=0)
    return counts
