"""CSR, IFS and DM: against known values, SciPy and scikit-learn, and through every head."""

from __future__ import annotations

import json

import numpy as np
import pytest
from problems import trained
from scipy.spatial.distance import pdist
from sklearn.metrics import calinski_harabasz_score

import afltool
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.heads.scoring import Separability
from afltool.math.gram import real
from afltool.values.names import MEASURES


def rows(n=120, m=5, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, m)) + 2 * rng.normal(size=(classes, m))[y], y


def measured(X, y, classes, cuts=()):
    found = Separability(classes, X.shape[1])
    for part in np.split(np.arange(len(y)), cuts):
        found.add(X[part], y[part])
    return found.figures()


@pytest.mark.parametrize("h", [0.5, 3.0])
def test_two_pairs_of_points_on_a_line(h):
    """Classes at −1 and 1, rows h beside their mean: S = 4h², N = 4, C = 2, means 2 apart."""
    X = np.array([[-1 - h], [-1 + h], [1 - h], [1 + h]])
    found = measured(X, np.array([0, 0, 1, 1]), 2)
    assert found == pytest.approx({"csr": h**2 / 4, "ifs": 2 * h**2, "dm": h**2})


def test_the_definitions_are_those_of_other_programs():
    X, y = rows()
    found, n, classes = measured(X, y, 4), len(y), 4
    means = np.stack([X[y == c].mean(axis=0) for c in range(4)])
    within = sum(((X[y == c] - means[c]) ** 2).sum() for c in range(4))
    assert found["csr"] == pytest.approx(within / n / pdist(means, "sqeuclidean").mean())
    assert found["ifs"] == pytest.approx(within / (n - classes) / means.var(axis=0).sum())
    ratio = calinski_harabasz_score(X, y)  # (B / (C − 1)) / (S / (N − C))
    assert found["dm"] == pytest.approx((n - classes) / (classes - 1) / ratio)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    assert measured(3 * X @ Q - 7, y, 4) == pytest.approx(found)  # no shift, rotation or scale


@pytest.mark.parametrize("cuts", [[3, 3, 90], list(range(1, 120))])
def test_blocks_give_what_the_whole_gives_also_far_from_zero(cuts):
    X, y = rows()
    whole, far = measured(X, y, 4), X + 1e6
    assert measured(X, y, 4, cuts) == pytest.approx(whole, rel=1e-12)
    assert measured(far, y, 4, cuts) == pytest.approx(whole, rel=1e-8)  # Σ‖x‖² would lose it


def test_what_the_rows_do_not_determine_is_none():
    X, y = rows()
    none = dict.fromkeys(MEASURES)
    assert measured(X[:0], y[:0], 4) == measured(X, 0 * y, 4) == none
    assert measured(np.ones((6, 2)), np.arange(6) % 3, 3) == none
    one_each = measured(X[:3], np.arange(3), 3)
    assert (one_each["csr"], one_each["ifs"], one_each["dm"]) == (0, None, 0)
    assert measured(X, y, 4) == measured(X, 2 * y, 9)  # classes without rows are not counted


HEADS = [
    ("linear", {}),
    ("random-features", {"width": 8, "with_linear": True, "compute": "float64", "ridge": 1}),
    ("safle", {"thresholds": "range:-4:4", "buckets": 4, "ridge": 1}),
    ("safle", {"thresholds": "range:-4:4", "buckets": 4, "ridge": 1, "with_linear": True}),
    ("deepafl", {"layers": 2, "width": 8, "compute": "float64"}),
    ("softmax", {"rounds": 1, "features": "random", "width": 8}),
    ("discriminant", {}),
]


def weights_of(head, t, width):
    """What the scores are made of the features by, and what is added."""
    arrays = head.state_dict()
    if head.name == "deepafl":
        return arrays[f"weights-{t}"], 0.0
    if head.name == "safle":
        tables = arrays["tables"].reshape(-1, arrays["tables"].shape[-1])
        return np.vstack([arrays.get("linear", tables[:0]), tables]), 0.0
    W = arrays["weights"]
    return (W[:-1], W[-1]) if len(W) > width else (W, 0.0)  # the intercept is last


@pytest.mark.parametrize(("name", "options"), HEADS)
def test_the_features_are_what_the_scores_are_made_of(name, options):
    X, y = rows(90)
    head = make_head(name, options).bind(5, 4)
    head = trained(head, X, y)
    scores = dict(head.round_scores(X))
    features = {phase: real(phi).copy() for phase, phi in head.features.each(X)}
    if name == "deepafl":
        assert list(features) == ["weights-0", "weights-1", "weights-2"]
    for t, (phase, phi) in enumerate(features.items()):
        if name == "discriminant":  # makes none of its own
            assert np.array_equal(phi, X)
            continue
        W, b = weights_of(head, t, phi.shape[1])
        assert np.allclose(phi @ W + b, scores[phase], rtol=1e-5, atol=1e-6)


def test_evaluate_measures_every_layer(road, tmp_path, cli):
    out = tmp_path / "RUN"
    done = cli(
        "run", "--train-features", road.train, "--test-features", road.test, "--partition",
        road.clients, "--head", "deepafl", "--layers", 2, "--width", 12, "--separability",
        "--train-accuracy", "--each-round", "-o", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    last = [one for one in summary["rounds"] if "csr" in one]
    assert [one["phase"] for one in last] == ["weights-0", "weights-1", "weights-2"]
    head = max(out.glob("05-head*.h5"), key=lambda p: p.stat().st_mtime_ns)
    found = afltool.evaluate(head, road.test, separability=True)
    solved, _ = load_head(head)
    for split, start in ((road.test, ""), (road.train, "train_")):
        with open_features(split) as opened:
            X = np.vstack([real(block) for _, block in opened.blocks()])
            y = opened.labels
        for (_, phi), one in zip(solved.features.each(X), last, strict=True):
            wanted = measured(np.asarray(phi, dtype=np.float64), y, 4)
            got = {name: one[start + name] for name in MEASURES}
            assert got == pytest.approx(wanted, rel=1e-5)
    assert [one["csr"] for one in found["separability"]] == [one["csr"] for one in last]
    assert [one["width"] for one in found["separability"]] == [12] * 3
    assert summary["csr"] == last[-1]["csr"]
    assert summary["train_dm"] == last[-1]["train_dm"]
    assert "separability" not in afltool.evaluate(head, road.test)
    shown = cli("evaluate", head, road.test, "--separability").stdout
    assert "lower is better" in shown
    assert f"{summary['ifs']:.4g}" in shown
