"""The trainer of the baselines: what descent it is, and what its results do not depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rivals import (
    as_matrix,
    begun,
    federation,
    mean_gradient,
    same_bits,
    weights,
    with_ones,
)

from afltool.lab.baselines import METHODS
from afltool.lab.baselines.clients import Purpose, assigned_clients, client_key, permutation, stream

ONE_SHOT = ("fedlpa", "fedfisher")
TOGETHER = [(name, {}) for name in METHODS if name != "moon"] + [
    ("moon", {"hidden": 6}),
    ("fedavg", {"momentum": 0.9, "weight_decay": 1e-3, "participation": 0.6, "epochs": 2}),
]


def few(name, given):
    """A short run; FedGen's generator is small."""
    short = {"epochs": 2} if name in ONE_SHOT else {"rounds": 3}
    small = {"noise": 3, "generator_hidden": 5, "generator_steps": 3} if name == "fedgen" else {}
    return {**short, **small, **given}


# ------------------------------------------------------------ what it computes


def test_one_full_batch_step_a_round_is_centralised_gradient_descent():
    clients = federation(dtype=torch.float64)
    W, X, y = np.zeros((4, 8)), with_ones(clients.X), clients.y.numpy()
    for _ in range(5):
        W -= 0.3 * mean_gradient(W, X, y)
    for name in ("fedavg", "centralized"):
        found = weights(name, clients, rounds=5, lr=0.3, batch_size=0)
        np.testing.assert_allclose(as_matrix(found, 7, 4), W, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_the_descent_is_that_of_pytorch(layers, bias):
    """Gradients by automatic differentiation and torch.optim.SGD, with momentum and decay; the
    last batch is short, and momentum begins anew in each round."""
    clients = federation((170,), dtype=torch.float64)
    given = {"momentum": 0.9, "weight_decay": 0.01, "lr": 0.05, "batch_size": 50, "rounds": 2}
    given["seed"] = 3
    shape = {"layers": layers} | ({"hidden": 5} if layers > 1 else {})
    run = begun("fedavg", clients, no_bias=not bias, **given, **shape)
    theirs = run.weights.clone().requires_grad_()
    for round in (1, 2):
        sgd = torch.optim.SGD([theirs], lr=0.05, momentum=0.9, weight_decay=0.01)
        words = stream(3, Purpose.BATCHES, round, client_key("site 0"), 0)
        order = clients.rows[0][permutation(words, 170)]
        for at in (order[:50], order[50:100], order[100:150], order[150:]):
            z = clients.X[at]
            for number, (W, b) in enumerate(run.network.layers(run.network.model(theirs))):
                z = z.relu() if number else z
                z = z @ W.T + (0 if b is None else b)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(z, clients.y[at]).backward()
            sgd.step()
        run.advance()
    torch.testing.assert_close(run.weights, theirs.detach(), rtol=1e-11, atol=1e-13)


# ------------------------------------------------------------ what it does not depend on


@pytest.mark.parametrize(("name", "given"), TOGETHER)
def test_threads_change_no_bit(name, given):
    """Whose clients are stacked follows from their sizes, not from the threads."""
    clients = federation((70, 130, 9, 64, 200, 1, 300, 65, 66))
    few_threads, many = (weights(name, clients, threads=n, **few(name, given)) for n in (1, 7))
    assert same_bits(many, few_threads)


@pytest.mark.parametrize(
    ("d", "classes", "hidden"), [(512, 100, None), (65, 10, None), (65, 10, 33)]
)
def test_stacked_clients_train_as_they_would_alone(d, classes, hidden):
    """Up to the order in which products of other sizes add up."""
    clients = federation((64, 200, 131, 70, 65), d=d, classes=classes, dtype=torch.float64)
    run = begun("moon" if hidden else "fedntd", clients, rounds=2, hidden=hidden)
    run.advance()
    starts = run.method.starts(range(5), run.weights)
    together = run.trainer(2, range(5), starts, run.method)
    run.trainer.stack = 1
    alone = run.trainer(2, range(5), starts, run.method)
    torch.testing.assert_close(together, alone, rtol=1e-11, atol=1e-14)


def test_the_order_of_clients_and_rows_changes_no_bit_of_what_a_client_trains():
    clients = federation()
    mixed = np.random.default_rng(1).permutation(len(clients.y))
    back = np.argsort(mixed)
    order = [3, 0, 4, 2, 1]
    rows = tuple(back[clients.rows[k]] for k in order)
    names = tuple(clients.names[k] for k in order)
    other = replace(clients, X=clients.X[mixed], y=clients.y[mixed], rows=rows, names=names)
    a, b = begun("fedavg", clients), begun("fedavg", other)
    whole = [run.trainer(1, range(5), run.weights, run.method) for run in (a, b)]
    assert same_bits(whole[0][order], whole[1])
    some = b.trainer(1, [4, 0], b.weights, b.method)
    assert same_bits(some, whole[1][[4, 0]])


def test_streams_differ_in_every_part_of_their_key():
    keys = [(0, Purpose.BATCHES, 1, 2, 3), (1, Purpose.BATCHES, 1, 2, 3)]
    keys += [(0, Purpose.GENERATED, 1, 2, 3), (0, Purpose.BATCHES, 2, 2, 3)]
    keys += [(0, Purpose.BATCHES, 1, 3, 3), (0, Purpose.BATCHES, 1, 2, 4)]
    drawn = {tuple(permutation(stream(*key), 50)) for key in keys}
    assert len(drawn) == len(keys)
    assert sorted(permutation(stream(*keys[0]), 50)) == list(range(50))


def test_classes_are_drawn_in_proportion_to_their_counts():
    method = begun("fedgen", federation(), noise=1, generator_hidden=2).method
    method.pooled = np.array([1, 0, 2, 3])
    (found,), _ = method.noise([stream(0, Purpose.GENERATED)], 30_000)
    shares = np.bincount(found, minlength=4) / 30_000
    np.testing.assert_allclose(shares, [1 / 6, 0, 1 / 3, 1 / 2], atol=0.01)
    assert shares[1] == 0


# ------------------------------------------------------------ switches and failures


def test_short_batches_are_kept_unless_they_are_dropped():
    """PFLlib's habit: a client below one batch never trains, and votes for where it began."""
    clients = federation((64, 20), dtype=torch.float64)
    big = federation((64,), dtype=torch.float64)
    kept = weights("fedavg", clients, rounds=1)
    run = begun("fedavg", clients, rounds=1, drop_last=True)
    own = run.trainer(1, [0, 1], run.weights, run.method)
    assert own[1].abs().max() == 0
    assert own[0].abs().max() > 0
    run.advance()
    torch.testing.assert_close(run.weights, own[0] * 64 / 84)
    assert not torch.equal(kept, run.weights)
    whole, dropped = (weights("fedavg", big, drop_last=drop, rounds=1) for drop in (False, True))
    assert same_bits(whole, dropped)


def test_participants_are_drawn_anew_every_round_and_by_their_number():
    run = begun("fedavg", federation((20,) * 30), participation=0.2, rounds=9)
    drawn = [tuple(run.participants(t)) for t in range(1, 10)]
    assert all(len(set(who)) == 6 for who in drawn)
    assert len(set(drawn)) > 5
    assert begun("fedavg", federation((9, 9)), participation=0.01).participants(1) != []


def test_uniform_averages_count_every_client_once():
    clients = federation(dtype=torch.float64)
    run = begun("fedavg", clients, rounds=1, average="uniform")
    own = run.trainer(1, range(5), run.weights, run.method)
    run.advance()
    torch.testing.assert_close(run.weights, own.mean(0), rtol=1e-12, atol=1e-14)


def test_clients_without_rows_are_left_out():
    whole = federation((30, 40))
    names = ["site 0", "nobody", "site 1"]
    owner = np.zeros(70, int)
    owner[whole.rows[1]] = 2
    found = assigned_clients(whole.X, whole.y, np.arange(70), owner, names, 4, np.arange(3))
    assert found.names == ("site 0", "site 1")
    assert same_bits(weights("fedavg", found, rounds=2), weights("fedavg", whole, rounds=2))
