"""FedAvg against its floor, and against a plain loop of DataLoader and automatic differentiation.

    python benchmarks/bench_baselines.py [ROWS] [FEATURES] [CLASSES] [CLIENTS] [ROUNDS]

Defaults: 50,000 × 512, 100 classes, 100 clients (Dirichlet 0.1), 5 rounds of each kind in turn, on
all cores; seconds are those of the wall, medians. The floor is the two products of every step,
4NdC operations a round, at the rate that they reach by themselves: one batch's rows and a head that
every step changes, and the average. ``plain`` is what a user would write in PyTorch: a DataLoader
that shuffles, a linear layer, cross_entropy, backward, SGD, a weighted average of state dicts.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from measure import alternately, machine

from afltool import parallel
from afltool.lab.baselines import make_settings
from afltool.lab.baselines.clients import Clients, assigned_clients
from afltool.lab.baselines.runner import Measured, Run
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign

BATCH = 64
CORES = len(os.sched_getaffinity(0))


def federation(rows: int, d: int, classes: int, clients: int) -> Clients:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    X = np.abs(rng.normal(size=(rows, d)).astype(np.float32))
    ids = np.char.mod("%07d", np.arange(rows)).astype("S")
    owner = assign(ids, y, classes, PartitionOptions(clients=clients, alpha=0.1)).client
    names = [str(k) for k in range(clients)]
    return assigned_clients(
        torch.from_numpy(X), torch.from_numpy(y), np.arange(rows), owner, names, classes,
        np.arange(clients),
    )  # fmt: skip


def products(d: int, classes: int, batches: int) -> None:
    """The two products of so many steps, shared by one thread a core."""

    def some(count: int) -> None:
        torch.set_num_threads(1)
        X, W = torch.randn(1, BATCH, d), torch.randn(1, classes, d)
        R = torch.randn(1, BATCH, classes)
        S = torch.empty(1, BATCH, classes)
        for _ in range(count):
            torch.bmm(X, W.transpose(1, 2), out=S)
            W.baddbmm_(R.transpose(1, 2), X, alpha=-1e-9)  # 0 would be left out

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(some, [-(-batches // CORES)] * CORES))


def plain(clients: Clients, d: int, classes: int) -> None:
    """One round by the usual means, on all cores as PyTorch takes them."""
    torch.set_num_threads(CORES)
    whole = torch.nn.Linear(d, classes)
    total = {name: torch.zeros_like(value) for name, value in whole.state_dict().items()}
    for k, share in enumerate(clients.shares):
        model = torch.nn.Linear(d, classes)
        model.load_state_dict(whole.state_dict())
        sgd = torch.optim.SGD(model.parameters(), lr=0.05)
        own = clients.rows[k]
        data = torch.utils.data.TensorDataset(clients.X[own], clients.y[own])
        for X, y in torch.utils.data.DataLoader(data, BATCH, shuffle=True):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(model(X), y).backward()
            sgd.step()
        for name, value in model.state_dict().items():
            total[name] += float(share) * value


def main(
    rows: int = 50_000, d: int = 512, classes: int = 100, clients: int = 100, rounds: int = 5
) -> None:
    data = federation(rows, d, classes, clients)
    settings = make_settings("fedavg", {"rounds": 10**4, "every": 10**4})
    run = Run("fedavg", settings, data, Measured(data.X, data.y.numpy()))
    batches = rows / BATCH  # N rows of work, whatever short batches are filled up with
    steps = sum(-(-int(n) // BATCH) for n in data.sizes)
    begun = time.perf_counter()
    with parallel.thread_limit(CORES):
        ours, floor, theirs = alternately(
            run.advance,
            lambda: products(d, classes, round(batches)),
            lambda: plain(data, d, classes),
            repeats=rounds,
        )
    print(machine())
    print(
        f"{rows} × {d}, {classes} classes, {clients} clients, {steps} steps a round, "
        f"{CORES} threads, medians of {rounds} ({time.perf_counter() - begun:.0f} s in all)"
    )
    operations = 4 * rows * d * classes
    print(f"floor   {floor:.3f} s a round, {operations / floor / 1e9:.0f} GFLOP/s")
    print(f"ours    {ours:.3f} s a round, {ours / floor:.2f} times the floor; "
          f"500 rounds {500 * ours:.0f} s")  # fmt: skip
    print(f"plain   {theirs:.3f} s a round, {theirs / ours:.1f} times ours")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
