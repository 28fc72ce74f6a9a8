"""Every head on features of very different scale, by one client and by 9, beside NumPy.

Scores agree to 1e-9 of the largest in float64 and 1e-4 in float32; else the solve is refused and
names what helps.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from problems import drawn, gelu
from scipy.special import logsumexp
from sklearn import datasets
from sklearn.naive_bayes import GaussianNB

from afltool.errors import NumericalError
from afltool.heads import make_head
from afltool.math.gram import real
from afltool.values.statistics import Context

WITHIN = {"float32": 1e-4, "float64": 1e-9}
HELPS = {"float32": "--compute float64", "float64": "larger --ridge"}
DATA = ["iris", "wine", "breast_cancer", "wine wide", "breast_cancer wide"]


@cache
def data(name):
    """Raw rows in float32, or columns of deviation 1e-6 … 1e6, in no order; and labels."""
    X, y = getattr(datasets, f"load_{name.split()[0]}")(return_X_y=True)
    if "wide" in name:
        scales = np.logspace(-6, 6, X.shape[1])
        X = X / X.std(axis=0) * np.random.default_rng(1).permutation(scales)
    return X.astype(np.float32), y


def solved(name, options, X, y, clients):
    classes = int(y.max()) + 1
    head = make_head(name, options).bind(X.shape[1], classes)
    order = np.random.default_rng(5).permutation(len(y))
    parts = [np.sort(part) for part in np.array_split(order, clients)]
    while head.phase() is not None:
        space = {"fraction_bits": None, "dim": X.shape[1]}
        sums = [head.gather([(X[part], y[part])])[0] for part in parts]
        whole = replace(sums[0], context=Context(space))
        for other in sums[1:]:
            whole = whole + replace(other, context=Context(space))
        head, _ = head.absorb(whole)
    return head


def ridge(Z, Y, λ, outside=0):
    """Scores of ridge regression by a singular value decomposition, and λ; 'auto' by GCV."""
    U, s, Vt = np.linalg.svd(Z, full_matrices=False)
    A = U.T @ Y

    def gcv(λ):
        f = s**2 / (s**2 + λ)
        left = len(Y) - f.sum() - outside
        error = (Y**2).sum() - ((2 * f - f**2)[:, None] * A**2).sum()
        return error / left**2 if left > 1e-9 * len(Y) else np.inf

    if λ == "auto":
        top = np.ceil(4 * np.log10(s[0] ** 2))
        λ = min(10.0 ** (np.arange(top - 40, top + 1) / 4), key=gcv)
    return Vt.T @ ((s / (s**2 + λ))[:, None] * A)


def least_squares(Z, Y, options):
    mean_z = mean_y = 0.0
    if options.get("intercept"):
        mean_z, mean_y = Z.mean(axis=0), Y.mean(axis=0)
    Z = Z - mean_z
    if options.get("standardize"):
        deviation = Z.std(axis=0)
        Z = Z / np.where(deviation > 1e-12, deviation, 1.0)
    return Z @ ridge(Z, Y - mean_y, options["ridge"], bool(options.get("intercept"))) + mean_y


def network(X, Y, options):
    """DeepAFL, W_t and Ω_t by singular value decompositions of Φ and F themselves."""
    width, γ = options["width"], 0.1
    phi = np.tanh(drawn(X, 0, width))
    for t in range(options["layers"]):
        F = gelu(drawn(phi, t + 1, width))
        W = ridge(phi, Y, options["ridge"])
        (U, s, Qt), (P, f, Vt) = (np.linalg.svd(one, full_matrices=False) for one in (W, F))
        T = P.T @ (Y - phi @ W) @ Qt.T
        Z = Vt.T @ (np.outer(f, s) / (np.outer(f, s) ** 2 + γ) * T)
        phi = phi + F @ Z @ U.T
    return phi @ ridge(phi, Y, options["ridge"])


EQUAL = 1e-12  # objectives that differ by this share or less are equal


def softmax(Z, Y, options):
    """Softmax regression by some steps of majorisation, W = V - B^-1 g, with momentum.

    B^-1 times the gradient is the solution of a least-squares problem, by a QR of [Z / sqrt 2;
    diag(p)^1/2] whose columns have length 1, of centred Z: the intercept has no penalty.
    """
    (N, C), μ = Y.shape, options.get("penalty", 1e-3)
    Z = np.hstack([Z - Z.mean(axis=0), np.ones((N, 1))])
    p = np.append(np.full(Z.shape[1] - 1, μ * N), 0.0)
    A = np.vstack([Z / np.sqrt(2), np.diag(np.sqrt(p))])
    lengths = np.linalg.norm(A, axis=0)
    Q, R = np.linalg.qr(A / lengths)

    def divided(residual, V):
        """B^-1 (Z^T residual + p V)"""
        right = np.vstack([np.sqrt(2) * residual, np.sqrt(p)[:, None] * V])
        return np.linalg.solve(R, Q.T @ right) / lengths[:, None]

    V = W_before = best = 3 * divided(Y, np.zeros((len(p), C)))
    t, before, least = 1.0, np.inf, np.inf
    for _ in range(options["rounds"]):
        S = Z @ V
        log_sum = logsumexp(S, axis=1, keepdims=True)
        residual = np.exp(S - log_sum) - Y
        F = ((Y * (log_sum - S)).sum() + 0.5 * (p[:, None] * V**2).sum()) / N
        W = V - divided(residual, V)
        if least * (1 - EQUAL) > F:
            best, least = W, F
        t = 1.0 if before * (1 + EQUAL) < F else t
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        V, W_before, t, before = W + (t - 1) / t_next * (W - W_before), W, t_next, F
    return Z @ best


def numpys(name, options, X, y):
    X, Y = X.astype(float), np.eye(int(y.max()) + 1)[y]
    if name == "deepafl":
        return network(X, Y, options)
    if name == "random-features" or options.get("features") == "random":
        lifted = np.tanh(drawn(X, 0, options["width"]))
        X = np.hstack([lifted, X]) if options.get("with_linear") else lifted
    return (softmax if name == "softmax" else least_squares)(X, Y, options)


def compare(name, options, which, must_solve=False):
    X, y = data(which)
    compute, heads = options.get("compute", "float64"), []
    for clients in (1, 9):
        try:
            heads.append(solved(name, options, X, y, clients))
        except NumericalError as refused:
            said = str(refused)
            break
    else:
        said = ""
    if said:
        assert not must_solve, said
        helps = HELPS[compute].replace("ridge", "penalty" if name == "softmax" else "ridge")
        assert helps in said or "every feature has one value" in said
        assert not re.search(r"feature \d", said)
        return
    expected = numpys(name, options, X, y)
    one, nine = (head.decision_function(X) for head in heads)
    largest = WITHIN[compute] * np.abs(expected).max()
    assert np.abs(one - expected).max() < largest
    assert np.abs(nine - expected).max() < largest
    assert np.abs(nine - one).max() < largest


INTERCEPT, STANDARDIZE = {"intercept": True}, {"standardize": True}
OF_RIDGE = [  # each ridge with two ways, each way with a ridge that is given
    {"ridge": "auto"}, {"ridge": "auto", **INTERCEPT, **STANDARDIZE}, {"ridge": 1.0, **INTERCEPT},
    {"ridge": 1.0, **STANDARDIZE}, {"ridge": 1e-4}, {"ridge": 1e-4, **INTERCEPT, **STANDARDIZE},
]  # fmt: skip
OF_SOFTMAX = [
    {"rounds": 3},
    {"rounds": 12, "penalty": 1e-6},
    {"rounds": 12, "penalty": 1e-9},
]
# The objective falls no more; scores then still move by the root of its precision, and the best
# round is not chosen by rounding.
FORTY = {"rounds": 40, "penalty": 1.0}
LONG = [FORTY, {**FORTY, "features": "random", "width": 50}]


@pytest.mark.parametrize("which", DATA)
def test_heads_are_numpys_by_default(which):
    """Of float64, which heads of random features compute in unless they are told otherwise."""
    for more in OF_RIDGE:
        compare("linear", more, which, must_solve=True)
    if "wide" not in which:
        for more in ({"ridge": "auto"}, {"ridge": 2.0, "with_linear": True, **INTERCEPT}):
            compare("random-features", {"width": 100, **more}, which, must_solve=True)
    compare("deepafl", {"ridge": 1.0, "width": 64, "layers": 3}, which, must_solve=True)
    for more in OF_SOFTMAX + LONG * (which == "iris"):
        compare("softmax", more, which, must_solve=True)
    for name in ("random-features", "deepafl"):
        assert make_head(name).options.compute == "float64"
    assert make_head("softmax", {"features": "random"}).options.compute == "float64"


@pytest.mark.parametrize("compute", WITHIN)
@pytest.mark.parametrize("which", DATA)
def test_random_features_are_numpys_or_refused(which, compute):
    how = {"width": 50, "compute": compute}
    for more in OF_RIDGE:
        compare("random-features", {**how, **more}, which)
    for λ in ("auto", 1e-4):
        compare("deepafl", {**how, "ridge": λ, "layers": 2}, which)
    how |= {"features": "random", "rounds": 4}
    for more in ({}, {"with_linear": True}):
        compare("softmax", {**how, **more}, which, must_solve=True)
    for penalty in (1e-5, 1e-8):
        compare("softmax", {**how, "penalty": penalty}, which)


def test_softmax_of_features_far_from_zero_is_refused():
    """Sums no longer tell their deviation; the linear head refuses them, too."""
    X, y = datasets.load_iris(return_X_y=True)
    far = X * [1, 1, 1, 1e-2] + [0, 0, 0, 3e4]
    softmax = ("softmax", {"rounds": 3, "penalty": 1e-5})
    for name, given in (softmax, ("linear", {"intercept": True})):
        with pytest.raises(NumericalError, match="feature 3 lies too far from zero"):
            solved(name, given, far, y, 1)


RULES = ["nearest-mean", "lda", "fedcgs", "fed3r", "naive-bayes", "qda"]


def discriminants(rule, X, y):
    """Scores of a rule up to a part that all classes of a row have in common.

    In units of each feature's deviation, and from means, where the rule allows it: numbers that do
    not cancel.
    """
    wide, n = real(X), np.bincount(y)
    if rule == "naive-bayes":
        return GaussianNB().fit(wide, y).predict_joint_log_proba(wide)
    if rule == "fed3r":
        Z = np.hstack([wide, np.ones((len(y), 1))])
        W = ridge(Z, np.eye(len(n))[y], 0.01)
        return Z @ (W / np.linalg.norm(W[:-1], axis=0))
    V = wide if rule == "nearest-mean" else (wide - wide.mean(axis=0)) / wide.std(axis=0)
    M = np.array([V[y == c].mean(axis=0) for c in range(len(n))])
    if rule == "nearest-mean":
        return -0.5 * np.array([((V - m) ** 2).sum(axis=1) for m in M]).T
    each = [(V[y == c] - M[c]).T @ (V[y == c] - M[c]) for c in range(len(n))]
    Σ = {
        "lda": [sum(each) / len(y)] * len(n),
        "fedcgs": [np.cov(V.T)] * len(n),
        "qda": [one / k for one, k in zip(each, n, strict=True)],
    }[rule]
    away = [
        ((V - m) * np.linalg.solve(S, (V - m).T).T).sum(axis=1) for m, S in zip(M, Σ, strict=True)
    ]
    return np.log(n / len(y)) - 0.5 * (np.array(away).T + [np.linalg.slogdet(S)[1] for S in Σ])


@pytest.mark.parametrize("which", DATA)
def test_discriminants_are_numpys_and_do_not_depend_on_the_split(which):
    X, y = data(which)
    for rule in RULES:
        one, own = (
            solved("discriminant", {"rule": rule}, X, y, clients).decision_function(X)
            for clients in (1, 9)
        )
        assert np.abs(one - own).max() < 1e-9 * np.abs(one).max(), rule
        wanted = discriminants(rule, X, y)
        apart = (own - own[:, :1]) - (wanted - wanted[:, :1])
        assert np.abs(apart).max() < 1e-9 * np.abs(own).max(), rule


def test_ridges_are_not_chosen_from_float32_sums():
    X, y = data("wine")
    options = {"width": 50, "compute": "float32", "ridge": "auto"}
    with pytest.raises(NumericalError, match="hides which ridge is best: give --ridge a number"):
        solved("random-features", options, X, y, 1)
