"""Heads as graphs: the PyTorch modules that `export` writes give each head's own scores."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from rounds_of_heads import absorb

from afltool.errors import InvalidDataError, UsageError
from afltool.heads import make_head
from afltool.heads.base import NOBODY, binding
from afltool.heads.graphs import GRAPHS, Classifier, activated, arithmetic, graph_of
from afltool.heads.options import ACTIVATIONS
from afltool.heads.projections import activate
from afltool.math.gram import FixedPoint, encode
from afltool.values.statistics import Client, ClientId, Context

DIM, CLASSES, BITS = 10, 4, 9


def rows(bits, n=200, seed=0):
    """Rows that a classifier can tell apart, with exact zeros and halves of a step in them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = rng.normal(size=(n, DIM)) + np.random.default_rng(5).normal(size=(CLASSES, DIM))[y]
    x[:, :3] = np.maximum(x[:, :3], 0.0)
    x[::3, 4] = (np.floor(x[::3, 4] * 512) + 0.5) / 512
    return x.astype(np.float32), y


def stored(x, bits):
    return x if bits is None else FixedPoint(encode(x, bits), bits)


def solved(name, bits, classes=CLASSES, **options):
    """A head through all of its phases, from rows in memory."""
    x, y = rows(bits)
    head = make_head(name, options).bind(DIM, classes)
    while head.phase() is not None:
        clients = {ClientId("a"): Client(len(y))}
        found, _ = head.gather([(stored(x, bits), y)], clients)
        context = Context({"fraction_bits": bits}, tuple(map(str, range(classes))), binding(head))
        head = absorb(head, replace(found, context=context))
    return head


def network(bits):
    rng = np.random.default_rng(0)
    sizes = (DIM, 7, CLASSES)
    arrays = {}
    for n, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        arrays |= {f"weights-{n}": rng.normal(size=(fan_in, fan_out)).astype("f4")}
        arrays |= {f"bias-{n}": rng.normal(size=fan_out).astype("f4")}
    return make_head("network").restore(None, arrays)


HEADS = {
    "linear": ("linear", {}),
    "linear with an intercept": ("linear", {"intercept": True}),
    "deepafl": ("deepafl", {"layers": 3, "width": 24}),
    "deepafl, every other way": (
        "deepafl",
        {
            "layers": 2, "width": 16, "from_phi0": True, "compute": "float64",
            "activation": "tanh", "projection": "gaussian",
        },
    ),
    "deepafl without skips": ("deepafl", {"layers": 2, "width": 16, "no_skip": True}),
    "deepafl, identities": (
        "deepafl", {"layers": 2, "width": 16, "identity_omega": True, "identity_projection": True},
    ),
    "deepafl, Ω random": (
        "deepafl", {"layers": 2, "width": 16, "random_omega": True, "bias": "first"},
    ),
    "deepafl, fixed, Ω random": (
        "deepafl", {"layers": 2, "width": 16, "random_omega": True, "compute": "fixed"},
    ),
    "deepafl, cascade": ("deepafl", {"layers": 2, "width": 16, "deepening": "cascade"}),
    "deepafl, activated cascade of codes": (
        "deepafl",
        {
            "layers": 2, "width": 16, "hidden_width": 9, "deepening": "activated-cascade",
            "label_encoding": True, "compute": "float64", "activation": "relu",
        },
    ),
    "deepafl, fixed": ("deepafl", {"layers": 3, "width": 24, "compute": "fixed"}),
    "deepafl, fixed, every other way": (
        "deepafl",
        {
            "layers": 2, "width": 5, "from_phi0": True, "compute": "fixed", "no_skip": True,
            "projection": "gaussian", "fixed_bits": 9, "hidden_width": 7,
        },
    ),
    "deepafl, fixed, identities": (
        "deepafl",
        {
            "layers": 2, "width": 16, "identity_omega": True, "identity_projection": True,
            "compute": "fixed", "activation": "tanh",
        },
    ),
    "deepafl, fixed, activated cascade of codes": (
        "deepafl",
        {
            "layers": 2, "width": 16, "hidden_width": 9, "deepening": "activated-cascade",
            "label_encoding": True, "compute": "fixed",
        },
    ),
    "random features": ("random-features", {"width": 32, "with_linear": True}),
    "random features, fixed": (
        "random-features",
        {"width": 32, "compute": "fixed", "with_linear": True, "intercept": True},
    ),
    "random features, fixed relu": (
        "random-features", {"width": 32, "compute": "fixed", "activation": "relu"},
    ),
    "safle": ("safle", {"buckets": 4, "group_size": 3}),
    "safle, onehot and hybrid": (
        "safle", {"buckets": 4, "group_size": 2, "bucketing": "onehot", "with_linear": True},
    ),
    "safle, integer": (
        "safle",
        {"buckets": 5, "group_size": 2, "bucketing": "integer", "thresholds": "range:-1:1"},
    ),
    "softmax": ("softmax", {"rounds": 2}),
    "softmax on random": ("softmax", {"rounds": 2, "features": "random", "width": 16}),
    "softmax on random, float32": (
        "softmax", {"rounds": 2, "features": "random", "width": 16, "compute": "float32"},
    ),
    "softmax on safle": (
        "softmax", {"rounds": 2, "features": "safle", "buckets": 4, "group_size": 2},
    ),
    "nearest mean": ("discriminant", {"rule": "nearest-mean"}),
    "lda": ("discriminant", {"rule": "lda"}),
    "fed3r": ("discriminant", {"rule": "fed3r"}),
    "fedcgs": ("discriminant", {"rule": "fedcgs"}),
    "naive Bayes": ("discriminant", {"rule": "naive-bayes"}),
    "qda": ("discriminant", {"rule": "qda"}),
}  # fmt: skip


@pytest.mark.parametrize("bits", [BITS, 3, None])
@pytest.mark.parametrize("case", [*HEADS, "network"])
def test_the_graph_gives_the_scores_of_the_head(case, bits):
    """Of rows that were rounded and of rows that are not yet; buckets never flip.

    Random features that the head rounds to b bits are real in the graph: scores differ by a few
    times 2^-b, and classes only where two scores are as close.
    """
    name, options = HEADS.get(case, ("network", {}))
    if bits is None and options.get("compute") == "fixed":
        pytest.skip("fixed random features are of int16 features")
    head = network(bits) if case == "network" else solved(name, bits, **options)
    x, _ = rows(bits, 500, seed=1)
    graph = Classifier(graph_of(head, bits), bits, head.log_probabilities).eval()
    with torch.inference_mode():
        found = graph(torch.from_numpy(x))
    wanted = head.scores(stored(x, bits))
    coarse = options.get("compute", "float32" if name in ("deepafl", "random-features") else "")
    tolerance = 2e-5 if coarse == "float32" else 1e-9
    rounded = arithmetic(graph)[1]
    if options.get("compute") == "fixed":
        assert rounded == options.get("fixed_bits", 11 if name == "deepafl" else bits)
    else:
        assert rounded == (bits if case == "softmax on random" else None)
    if rounded is not None:
        tolerance = 5 * 2.0**-rounded
    largest = np.abs(wanted).max()
    assert np.abs(found[0].numpy() - wanted).max() <= tolerance * largest
    assert np.array_equal(found[1].numpy(), found[0].numpy().argmax(axis=1))
    assert (found[1].numpy() == wanted.argmax(axis=1)).mean() > (0.997 if tolerance < 0.1 else 0.97)
    if head.log_probabilities:
        assert np.allclose(found[2].sum(dim=1), 1.0)
    assert len(found) == 2 + head.log_probabilities


def test_a_class_without_rows_is_never_predicted():
    for rule in ("lda", "naive-bayes", "qda"):
        head = solved("discriminant", BITS, classes=CLASSES + 1, rule=rule)
        x, _ = rows(BITS, 50, seed=1)
        scores, predicted, shares = Classifier(graph_of(head, BITS), BITS, True)(torch.tensor(x))
        wanted = head.scores(stored(x, BITS))
        assert torch.isneginf(scores[:, -1]).all()
        assert np.allclose(scores[:, :-1], wanted[:, :-1])
        assert np.array_equal(predicted, wanted.argmax(axis=1))
        assert (shares[:, -1] == 0).all()


@pytest.mark.parametrize(("bits", "bad"), [(9, 64.5), (9, np.nan), (None, np.inf), (None, np.nan)])
def test_a_row_that_would_be_refused_has_no_class(bits, bad):
    head = solved("linear", bits)
    x, _ = rows(bits, 5)
    x[2, 1] = bad
    scores, predicted = Classifier(graph_of(head, bits), bits, False)(torch.tensor(x))
    assert predicted.tolist().index(NOBODY) == 2
    assert (predicted >= 0).sum() == 4
    assert torch.isnan(scores).all(dim=1).tolist() == [False, False, True, False, False]


def test_random_features_beyond_their_table_have_no_scores():
    """relu of fixed point: the head refuses the row, the graph says NaN, and −1 is its class."""
    head = solved("random-features", BITS, width=32, compute="fixed", activation="relu")
    x, _ = rows(BITS, 2)
    A = graph_of(head, BITS)[0].drawn.A
    x[0] = np.where(A[:, 0] > 0, 63.9, -63.9)  # as far as a row can go
    scores, predicted = Classifier(graph_of(head, BITS), BITS, False)(torch.tensor(x))
    with pytest.raises(InvalidDataError, match="is beyond"):
        head.scores(stored(x[:1], BITS))
    assert torch.isnan(scores[0]).all()
    assert predicted.tolist() == [NOBODY, int(head.scores(stored(x[1:], BITS)).argmax())]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_are_those_of_the_heads(name, dtype):
    x = np.linspace(-9, 9, 1001, dtype=dtype)[None].copy()
    wanted = activate(name, x.copy())
    assert np.abs(activated(name, torch.tensor(x)).numpy() - wanted).max() < 1e-6


def test_a_head_without_a_graph_is_refused(monkeypatch):
    monkeypatch.delitem(GRAPHS, "network")
    with pytest.raises(UsageError, match="a network head cannot be exported"):
        graph_of(network(BITS), BITS)
