"""Each baseline against its formulas: where it must be FedAvg bit for bit, and its fixed points."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from rivals import (
    as_matrix,
    begun,
    federation,
    finished,
    mean_gradient,
    same_bits,
    weights,
    with_ones,
)
from scipy.special import softmax

from afltool.errors import UsageError
from afltool.lab.baselines import one_shot as cv
from afltool.lab.baselines.base import average
from afltool.lab.baselines.clients import Purpose, stream
from afltool.lab.baselines.methods import distances, gradient
from afltool.lab.baselines.network import DenseLayers

F64 = torch.float64
SMALL = {"noise": 3, "generator_hidden": 5, "generator_steps": 3}  # of FedGen
ONE_STEP = {"batch_size": 0, "epochs": 1}


def own_rows(clients, k):
    """Client k's rows (n_k, d) and labels."""
    return clients.X[clients.rows[k]], clients.y[clients.rows[k]]


def local_results(run, round=1):
    """θ (K, P) of all clients, without the server's part."""
    who = range(len(run.clients))
    starts = run.method.starts(list(who), run.weights)
    return run.trainer(round, who, starts, run.method)


# ------------------------------------------------------------ limits that are FedAvg


FEW = {"classes": 2}
ONE = {"sizes": (150,)}


@pytest.mark.parametrize(("name", "given", "shape"), [
    ("fedprox", {"mu": 0.0}, {}),
    ("fedprox", {"mu": 3.0, **ONE_STEP}, {}),
    ("moon", {"mu": 5.0}, {}),
    ("moon", {"mu": 0.0, "hidden": 6}, {}),
    ("fedgen", {"weight": 0.0, **SMALL}, {}),
    ("fedntd", {"beta": 0.0}, {}),
    ("fedntd", {"beta": 2.0, **ONE_STEP}, {}),
    ("fedntd", {"beta": 2.0}, FEW),
    ("feddisco", {"a": 0.0, "b": 0.0}, {}),
    ("fedawa", {}, ONE),
])  # fmt: skip
def test_limits_are_fedavg_bit_for_bit(name, given, shape):
    common = {k: given[k] for k in ("hidden", "batch_size", "epochs") if k in given}
    clients = federation(**shape)
    plain = weights("fedavg", clients, rounds=4, lr=0.2, **common)
    assert same_bits(weights(name, clients, rounds=4, lr=0.2, **given), plain)


def test_away_from_their_limits_they_are_not_fedavg():
    """The premise of the test above: it can fail."""
    for name, given in (
        ("fedprox", {"mu": 1.0}), ("moon", {"hidden": 6}), ("fedgen", SMALL), ("feddyn", {}),
        ("fedntd", {}), ("feddisco", {}), ("fedawa", {}),
    ):  # fmt: skip
        common = {"hidden": 6} if "hidden" in given else {}
        plain = weights("fedavg", federation(), rounds=2, lr=0.2, **common)
        other = weights(name, federation(), rounds=2, lr=0.2, **given)
        assert not torch.equal(other, plain), name


def test_moon_on_a_linear_head_says_that_it_is_fedavg(caplog):
    with caplog.at_level(logging.INFO, "afltool"):
        begun("moon", federation(), hidden=6)
        assert not caplog.text
        begun("moon", federation())
    assert "FedAvg" in caplog.text
    assert "--hidden" in caplog.text


# ------------------------------------------------------------ FedDyn

RIDGE = 1.0


def penalized(W, clients, k):
    """∇F_k of the cross-entropy with a ridge on W."""
    X, y = own_rows(clients, k)
    return mean_gradient(W, with_ones(X), y.numpy()) + RIDGE * W


def test_feddyn_ends_where_the_mean_of_the_gradients_vanishes():
    """The unweighted one, and no other."""
    clients = federation((30, 60, 90), d=3, classes=3, dtype=F64)
    given = {"batch_size": 0, "epochs": 6, "lr": 0.3, "weight_decay": RIDGE, "alpha": 1.5}
    W = as_matrix(weights("feddyn", clients, rounds=40, every=40, **given), 3, 3)
    gradients = [penalized(W, clients, k) for k in range(3)]
    weighted = sum(g * p for g, p in zip(gradients, clients.shares, strict=True))
    assert np.linalg.norm(sum(gradients) / 3) < 1e-8
    assert np.linalg.norm(weighted) > 1e-3
    assert max(map(np.linalg.norm, gradients)) > 1e-2


@pytest.mark.parametrize("hidden", [None, 6])
def test_the_first_round_of_feddyn_goes_twice_as_far(hidden):
    """W¹ = W⁰ + 2 mean(W_k − W⁰) for any data."""
    run = begun("feddyn", federation(dtype=F64), rounds=1, hidden=hidden)
    start = run.weights
    moved = local_results(run) - start
    run.advance()
    torch.testing.assert_close(run.weights, start + 2 * moved.mean(0), rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------ terms of the loss


def pulled(run, k, theta, start, X, y):
    return 1.3 / 2 * (theta - start).square().sum()


def regularized(run, k, theta, start, X, y):
    return 1.5 / 2 * (theta - start).square().sum() - theta @ run.method.g[k]


def contrasted(run, k, theta, start, X, y):
    here, there, before = (
        run.network.forward(run.network.model(w), X)[0]
        for w in (theta, start, run.method.previous[k])
    )
    near, far = (torch.cosine_similarity(here, z, dim=1) / 0.7 for z in (there, before))
    return 2.0 * (torch.logaddexp(near, far) - near).mean()


def distilled(run, k, theta, start, X, y):
    S, T = (run.network.forward(run.network.model(w), X)[1] for w in (theta, start))
    wrong = torch.ones_like(S).scatter_(1, y[:, None], 0).bool()
    logs, taught = ((one / 0.5)[wrong].view(len(X), 3) for one in (S, T))
    loss = torch.nn.functional.kl_div(logs.log_softmax(1), taught.softmax(1), reduction="batchmean")
    return 1.7 * 0.25 * loss


@pytest.mark.parametrize(("name", "given", "term"), [
    ("fedprox", {"mu": 1.3}, pulled),
    ("feddyn", {"alpha": 1.5}, regularized),
    ("moon", {"mu": 2.0, "tau": 0.7, "hidden": 6}, contrasted),
    ("fedntd", {"beta": 1.7, "tau": 0.5}, distilled),
])  # fmt: skip
def test_steps_are_those_of_automatic_differentiation(name, given, term):
    """Two full-batch steps in round 2, when a client's own model is another than the global one."""
    run = begun(name, federation((40, 60), dtype=F64), batch_size=0, epochs=2, lr=0.3, **given)
    run.advance()
    start, found = run.weights, local_results(run, round=2)
    for k in range(2):
        X, y = own_rows(run.clients, k)
        theta = start
        for _ in range(2):
            theta = theta.detach().requires_grad_()
            scores = run.network.forward(run.network.model(theta), X)[1]
            loss = torch.nn.functional.cross_entropy(scores, y) + term(run, k, theta, start, X, y)
            theta = theta - 0.3 * torch.autograd.grad(loss, theta)[0]
        torch.testing.assert_close(found[k], theta.detach(), rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------ FedGen


def test_the_generator_learns_what_the_average_classifies_well():
    given = {"noise": 4, "generator_hidden": 6, "generator_steps": 1}
    run = begun("fedgen", federation(dtype=F64), rounds=2, **given)
    run.advance()
    method, top = run.method, run.weights
    slope = method.slope(stream(7, Purpose.GENERATOR, 5), top)
    omega = method.omega.clone().requires_grad_()
    (y,), (drawn,) = method.noise([stream(7, Purpose.GENERATOR, 5)], 64)
    (W, b), (V, c) = method.generator.layers(method.generator.model(omega))
    z = (drawn @ W.T + b).relu() @ V.T + c
    ((head, bias),) = run.network.layers(run.network.model(top))
    torch.nn.functional.cross_entropy(z @ head.T + bias, y).backward()
    torch.testing.assert_close(slope, omega.grad, rtol=1e-10, atol=1e-13)


def test_fedgens_message_has_the_size_of_pfllibs():
    """2.31 MB of generator beside the head, for 512 features and 100 classes."""
    network = DenseLayers((512, 100), bias=True)
    method = begun("fedgen", federation(d=512, classes=100, sizes=(60,))).method
    assert network.size * 4 == 205_200
    assert (method.download(1) - network.size) * 4 == pytest.approx(2.31e6, rel=0.01)
    assert method.upload(1) - method.upload(2) == 100


# ------------------------------------------------------------ weights: FedDisco, FedAWA


def kl_from_uniform(counts):
    p = counts / counts.sum()
    return (p * np.log(p * len(p))).sum()


def test_feddiscos_weights(caplog):
    """Those of rows where none is left."""
    clients = federation((50, 50, 100), classes=4, labels=([0], [1], [0, 1, 2, 3]))
    counts = clients.counts
    assert counts[0, 0] == 50
    d = distances(counts)
    assert d.sum() == pytest.approx(1)
    assert d[0] / d[2] == pytest.approx(np.log(4) / kl_from_uniform(counts[2]))
    heavy = begun("feddisco", clients, a=1.0, b=0.0).method.weigh(range(3))
    assert heavy[:2].tolist() == [0, 0]
    assert heavy[2] > 0
    far = begun("feddisco", clients, a=0.5, b=1e9).method.weigh(range(3))
    np.testing.assert_allclose(far / far.sum(), 1 / 3, rtol=1e-8)
    with caplog.at_level(logging.WARNING, "afltool"):
        none = begun("feddisco", clients, a=50.0, b=0.0).method.weigh(range(2))
    np.testing.assert_array_equal(none, clients.shares[:2])
    assert "--a" in caplog.text


def test_feddisco_is_fedavg_where_b_makes_up_for_equal_distances():
    apart = federation((50, 70, 90), classes=4, labels=([0], [1], [2]), dtype=F64)
    d = distances(apart.counts)
    assert np.ptp(d) < 1e-15
    found = weights("feddisco", apart, rounds=3, a=0.3, b=float(0.3 * d[0]))
    plain = weights("fedavg", apart, rounds=3)
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-15)


def test_fedawas_gradient_is_that_of_its_loss_and_follows_its_clients():
    g = torch.Generator().manual_seed(3)
    theta, start = torch.randn(4, 9, generator=g, dtype=F64), torch.randn(9, generator=g, dtype=F64)
    T = torch.randn(4, generator=g, dtype=F64).requires_grad_()
    w, tau = T.softmax(0), theta - start
    cos = torch.nn.functional.cosine_similarity(theta, start[None], dim=1)
    far = (tau - (w[:, None] * tau).sum(0)).norm(dim=1)
    ((w * (1 - cos)).sum() + (w * far).sum()).backward()
    found = gradient(T.detach(), theta, start)
    torch.testing.assert_close(found, T.grad, rtol=1e-10, atol=1e-13)
    order = [3, 0, 1, 2]
    again = gradient(T.detach()[order], theta[order], start)
    torch.testing.assert_close(again, found[order], rtol=1e-11, atol=1e-15)


def test_fedawa_moves_every_logit_by_its_step_at_most():
    run = finished("fedawa", federation(), rounds=3)
    first = begun("fedawa", federation()).method.T
    moved = (run.method.T - first).abs()
    assert 0 < moved.max() <= 3 * 0.001 * (1 + 1e-12)


# ------------------------------------------------------------ one shot: FedLPA, FedFisher

SHOT = ["fedlpa", "fedfisher"]


def merged(method, theta):
    return method.merge(1, range(len(theta)), torch.zeros_like(theta[0]), theta)


def random_heads(clients, count, seed=0):
    size = (clients.X.shape[1] + 1) * clients.classes
    g = torch.Generator().manual_seed(seed)
    return 0.3 * torch.randn(count, size, generator=g, dtype=F64)


@pytest.mark.parametrize("sizes", [(150,), (70, 130, 9, 64, 200)])
@pytest.mark.parametrize("name", SHOT)
def test_equal_heads_are_merged_into_themselves(name, sizes):
    """One client gets its own back."""
    clients = federation(sizes, dtype=F64)
    theta = random_heads(clients, 1).expand(len(sizes), -1)
    method = begun(name, clients).method
    torch.testing.assert_close(merged(method, theta), theta[0], rtol=1e-13, atol=1e-13)


def scaled(powers=3):
    """Features whose sizes differ by ``powers`` powers of ten, so their grams by twice as many."""
    clients = federation((70, 130, 30, 64, 200), d=20, dtype=F64)
    return replace(clients, X=clients.X * 10.0 ** torch.linspace(0, -powers, 20, dtype=F64))


@pytest.mark.parametrize(("name", "given"), [("fedlpa", {"damping": 1e-4}), ("fedfisher", {})])
def test_features_of_all_sizes_take_few_iterations_to_the_same_residual(name, given, monkeypatch):
    """The residual is computed anew; without the preconditioner they are beyond 5 times as many."""
    clients = scaled()
    theta = random_heads(clients, 5)
    method = begun(name, clients, **given).method
    found = as_matrix(merged(method, theta), 20, 4)
    heads = cv.matrices(method.network, theta)
    mean = np.einsum("k,kij->ij", clients.shares, heads)
    system = method.system(range(5), heads)
    first = system(heads - mean)
    left = system(heads - found)
    assert np.linalg.norm(left) <= 2e-8 * np.linalg.norm(first)
    taken = method.facts["iterations"]
    assert taken <= 60
    monkeypatch.setattr(cv, "ITERATIONS", 5 * taken)
    monkeypatch.setattr(cv.Quadratic, "preconditioner", lambda self: lambda R: R)
    assert system.solve(first)[2] > 1e-6
    if not method.damping:
        np.testing.assert_allclose(found.sum(axis=0), mean.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("name", SHOT)
def test_the_merged_head_solves_its_system(name, monkeypatch):
    """Against the Kronecker system as a dense one, by least squares nearest to the average."""
    clients = federation(d=3, dtype=F64)
    theta = random_heads(clients, 5)
    monkeypatch.setattr(cv, "TOLERANCE", 1e-14)
    method = begun(name, clients).method
    found = as_matrix(merged(method, theta), 3, 4)
    K, Z = np.zeros((16, 16)), np.zeros(16)
    for k in range(5):
        W, (rows, y) = as_matrix(theta[k], 3, 4), own_rows(clients, k)
        X, rho = with_ones(rows), method.damping
        G = method.factor(softmax(X @ W.T, axis=1), y.numpy()) + rho * np.eye(4)
        M = np.kron(G, X.T @ X / len(X) + rho * np.eye(4)) * clients.shares[k]
        K, Z = K + M, Z + M @ W.ravel()
    mean = as_matrix(average(theta, clients.shares), 3, 4).ravel()
    wanted = mean + np.linalg.lstsq(K, Z - K @ mean, rcond=1e-12)[0]
    np.testing.assert_allclose(found.ravel(), wanted, atol=1e-8)
    assert method.facts["relative_residual"] <= 1e-14


def test_fishers_information_is_the_curvature_of_the_loss():
    """diag(mean P) − PᵀP/n against the Hessian in the scores, by automatic differentiation."""
    S = torch.randn(6, 3, generator=torch.Generator().manual_seed(5), dtype=F64)
    shift = torch.zeros(3, dtype=F64)
    loss = torch.nn.functional.cross_entropy
    hessian = torch.autograd.functional.hessian(
        lambda v: loss(S + v, torch.zeros(6, dtype=torch.long)), shift
    )
    factor = cv.FedFisher.factor(S.softmax(1).numpy(), np.zeros(6, int))
    np.testing.assert_allclose(factor, hessian.numpy(), atol=1e-14)
    shown = cv.FedLPA.factor(np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([0, 1]))
    np.testing.assert_allclose(shown, [[0.13, -0.13], [-0.13, 0.13]], atol=1e-15)


def test_one_shot_methods_refuse_what_they_are_not():
    with pytest.raises(UsageError, match="--rounds is 1 to 1"):
        begun("fedlpa", federation(), rounds=2)
    with pytest.raises(UsageError, match="linear head"):
        begun("fedfisher", federation(), hidden=6)


# ------------------------------------------------------------ local only


def test_a_client_of_one_class_is_right_where_that_class_is():
    """Features are not negative, so a class that was never seen never wins: accuracy 1/C."""
    clients = federation((50, 50, 50, 50), labels=([0], [1], [2], [3]))
    assert clients.X.min() >= 0
    run = finished("local", clients, rounds=3, every=1)
    assert run.rounds[-1]["top1"] == pytest.approx(1 / 4)
    assert run.rounds[-1]["top1_spread"] == pytest.approx(0)
    assert run.accuracies(run.method.own, run.test) == pytest.approx([1 / 4] * 4)


def test_local_heads_are_what_each_client_would_train_alone():
    clients = federation()
    run = finished("local", clients, rounds=3, every=3)
    for k in (0, 4):
        alone = replace(clients, rows=(clients.rows[k],), names=(clients.names[k],))
        own = weights("fedavg", alone, rounds=3)
        assert same_bits(run.method.own[k], own)
    assert same_bits(run.weights, run.method.own[4]), "the one with the most rows"
    assert run.rounds[-1]["top1_max"] >= run.rounds[-1]["top1"]
