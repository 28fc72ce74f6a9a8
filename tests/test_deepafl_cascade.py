"""DeepAFL's other deepening strategies (E.3.7): their formulas, identities, files, invariance."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from rounds_of_heads import absorb, report_of
from test_deepafl import C, D, rows

import afltool
from afltool.files.heads import load_head
from afltool.heads import OPTIONS, make_head
from afltool.heads.deepafl.layers import OF_LABELS
from afltool.heads.projections import activate, projection
from afltool.memory import NOTHING, Remembered
from afltool.values.statistics import Sum

WIDTH, CODED = 12, 9
FOUR = [
    {"deepening": deepening, "label_encoding": encoded}
    for deepening in ("cascade", "activated-cascade")
    for encoded in (False, True)
]


def fitted(X, y, owner=None, carry=True, **options):
    given = {"width": WIDTH, "hidden_width": CODED, "layers": 3, "compute": "float64", **options}
    head = make_head("deepafl", given).bind(D, C)
    owner = np.zeros(len(y), int) if owner is None else owner
    parts = [(X[owner == k], y[owner == k]) for k in range(owner.max() + 1)]
    carried = [Remembered() if carry else NOTHING for _ in parts]
    while head.phase() is not None:
        running = None
        for k, (x, labels) in enumerate(parts):
            one, left = head.gather([(x, labels)], carried=carried[k])
            carried[k] = left if carry else NOTHING
            running = Sum(one) if running is None else running.add(one)
        head = absorb(head, running.result())
    return head


def layered(X, y, T, lam, *, deepening, label_encoding, seed=3):
    """Every W_t of pooled rows; the layers are solved for Y Q_t itself, as the text has it."""
    Y = np.eye(C)[y]
    drawn = partial(projection, "linear-uniform", seed)
    phi = activate("tanh", drawn(0, D, WIDTH)(X))
    found = []
    for t in range(T + 1):
        system = phi.T @ phi + lam * np.eye(WIDTH)
        found.append(np.linalg.solve(system, phi.T @ Y))
        Q = drawn(OF_LABELS + t, C, CODED).A.astype(float) if label_encoding else np.eye(C)
        fit = phi @ np.linalg.solve(system, phi.T @ (Y @ Q))
        phi = drawn(t + 1, Q.shape[1], WIDTH)(fit)
        phi = activate("gelu", phi) if deepening == "activated-cascade" else phi
    return found


@pytest.mark.parametrize("strategy", FOUR)
def test_every_layer_is_solved_for_the_labels_or_their_codes(strategy):
    X, y = rows()
    head = fitted(X, y, ridge=0.5, seed=3, **strategy)
    for W, wanted in zip(head.weights, layered(X, y, 3, 0.5, **strategy), strict=True):
        assert np.allclose(W, wanted, rtol=1e-8, atol=1e-10)
    *_, (_, last) = head.round_scores(X)
    assert np.array_equal(last, head.scores(X))


@pytest.mark.parametrize("encoded", [False, True])
def test_linear_layers_change_nothing_without_a_ridge(encoded):
    """Least squares of Y on any invertible map of its own fit is that fit."""
    X, y = rows()
    head = fitted(
        X, y, ridge=0, min_norm=True, projection="gaussian", deepening="cascade",
        label_encoding=encoded,
    )  # fmt: skip
    scores = [found for _, found in head.round_scores(X)]
    assert len(scores) == 4
    for one in scores[1:]:
        assert np.allclose(one, scores[0], atol=1e-9)
    bent = fitted(
        X, y, ridge=0, min_norm=True, projection="gaussian", deepening="activated-cascade"
    )
    *_, (_, last) = bent.round_scores(X)
    assert not np.allclose(last, scores[0], atol=1e-3)


@pytest.mark.parametrize("strategy", FOUR)
def test_a_layer_is_one_round(strategy):
    X, y = rows()
    head = fitted(X, y, **strategy)
    rounds = report_of(head)["phases"]
    assert [one["phase"] for one in rounds] == [f"weights-{t}" for t in range(4)]
    size = 8 * (WIDTH * (WIDTH + 1) // 2 + WIDTH * C)
    assert {one["upload_bytes"] for one in rounds} == {size}
    assert {one["download_bytes"] for one in rounds} == {8 * WIDTH * C}


def test_the_default_is_not_in_a_heads_file():
    """So heads of before have the digests that they had."""
    known = OPTIONS["deepafl"]().as_dict()
    assert not {"deepening", "label_encoding"} & known.keys()
    assert OPTIONS["deepafl"](deepening="cascade").as_dict()["deepening"] == "cascade"


def test_a_run_through_files(road, tmp_path, cli):
    out = tmp_path / "RUN"
    done = cli(
        "run", "--train-features", road.train, "--test-features", road.test, "--partition",
        road.clients, "--head", "deepafl", "--layers", 2, "--width", 12, "--deepening",
        "activated-cascade", "--label-encoding", "--each-round", "-o", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert [one["phase"] for one in summary["rounds"]] == ["weights-0", "weights-1", "weights-2"]
    assert summary["options"]["deepening"] == "activated-cascade"
    assert summary["options"]["label_encoding"] is True
    last = max(out.glob("05-head*.h5"), key=lambda p: p.stat().st_mtime_ns)
    again, _ = load_head(last)
    assert again.phase() is None
    assert [one["top1"] for one in summary["rounds"]][-1] == summary["top1"]
    assert afltool.evaluate(last, road.test)["top1"] == summary["top1"]
