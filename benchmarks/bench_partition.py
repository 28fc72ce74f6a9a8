"""Seconds to partition 1,000,000 rows over 10,000 clients, per scheme.

    python benchmarks/bench_partition.py [--rows 1000000] [--clients 10000] [--classes 1000]

Prints one line per case; a case that ends in a documented error prints the error instead.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from measure import machine

from afltool.errors import AflError
from afltool.options.partition import PartitionOptions
from afltool.partitions import summary
from afltool.partitions.dealing import assign


def _cases(clients: int, user: np.ndarray) -> list[dict[str, Any]]:
    dirichlet: dict[str, Any] = {"scheme": "dirichlet", "clients": clients}
    published: dict[str, Any] = {"scheme": "dirichlet-pfl", "clients": clients}
    sharding: dict[str, Any] = {"scheme": "pathological-pfl", "clients": clients}
    return [
        {"scheme": "iid", "clients": clients},
        *[{**dirichlet, "alpha": alpha} for alpha in (1e-6, 0.1, 1e6)],
        {**dirichlet, "alpha": 0.1, "balance_cap": True},
        {**dirichlet, "alpha": 0.1, "min_size": 10},
        {**dirichlet, "alpha": 0.01, "min_size": 10},
        {"scheme": "shards", "clients": clients, "shards_per_client": 2},
        {"scheme": "by-attribute", "attribute": user},
        {"scheme": "file", "attribute": user.astype(str), "clients": clients},
        *[{**published, "alpha": alpha} for alpha in (0.01, 0.1)],
        *[{**published, "alpha": 0.1, "min_size": 0, "top_up": top} for top in (False, True)],
        {**published, "alpha": 0.1, "top_up": True},
        {**sharding, "balance": True},
        {**sharding, "min_size": 0},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1_000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    ids = np.char.add(b"train/", rng.permutation(args.rows).astype("S8"))
    labels = rng.integers(0, args.classes, args.rows)
    user = rng.integers(0, args.clients, args.rows)
    print(machine())
    print(f"{args.rows:,} rows, {args.clients:,} clients, {args.classes:,} classes")
    for options in _cases(args.clients, user):
        start, note = time.perf_counter(), ""
        try:
            attribute = options.pop("attribute", None)
            how = PartitionOptions(held_out=0.1, label_noise=0.1, **options)
            found = assign(ids, labels, args.classes, how, attribute=attribute)
        except AflError as error:
            note = f"  {type(error).__name__}: {error}"
        seconds = time.perf_counter() - start
        options.pop("attribute", None)
        name = ", ".join(str(v) if k == "scheme" else f"{k}={v}" for k, v in options.items())
        print(f"{seconds:7.2f} s  {name}{note}", flush=True)
    start = time.perf_counter()
    summary(found.client, found.effective_labels, len(found.names), args.classes)
    print(f"{time.perf_counter() - start:7.2f} s  summary")


if __name__ == "__main__":
    main()
