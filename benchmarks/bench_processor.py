"""What of the work depends on the processor: the rate of each part, by the kernels of OpenBLAS.

    python benchmarks/bench_processor.py [CORETYPE …]        default: as chosen, Haswell, Zen

One thread. OpenBLAS chooses its kernels when it is loaded, by the processor; OPENBLAS_CORETYPE
names others, each in a process of its own. NumPy and SciPy bring an OpenBLAS each: products of few
rows are NumPy's (softmax), all others SciPy's. Below the rates: the seconds that a round of softmax
with ten classes, one with 100, and a layer of DeepAFL would take if these parts were all of it, and
the share of each (50,000 × 1,280).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from measure import fresh, machine

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
D, WIDTH = 1280, 1024


def rate(work: Callable[[], object], amount: float, seconds: float = 0.2) -> float:
    """``amount`` a processor second, the best of several."""
    work()
    best, until = 0.0, time.process_time() + seconds
    while time.process_time() < until:
        begun = time.process_time()
        work()
        best = max(best, amount / max(time.process_time() - begun, 1e-9))
    return best


def parts() -> dict[str, float]:
    """Rates: GB/s of bytes, Gflop/s of products (a product and a sum are two)."""
    import torch
    from scipy.linalg.blas import dsyrk, sgemm, ssyrk

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    values = rng.integers(-4000, 4000, (3072, D)).astype(np.int16)
    real, single = values.astype(np.float64), rng.random((4096, WIDTH), np.float32)
    few, V, B = real[:64], {c: rng.random((D, c)) for c in (10, 100)}, single[:WIDTH].copy()
    data, room, scores = values.tobytes(), np.empty((256, D)), rng.normal(size=(256, 100))
    tensor = torch.from_numpy(single.copy())
    found = {
        "SHA-256, GB/s": rate(lambda: hashlib.sha256(data).digest(), len(data) / 1e9),
        "int16 → float64, GB/s": rate(lambda: np.copyto(room, values[:256]), room.nbytes / 4e9),
        "new pages, GB/s": rate(lambda: np.empty(32 << 20, np.uint8).fill(1), 32 * 2**20 / 1e9),
        "exp float64, G/s": rate(lambda: np.exp(scores), scores.size / 1e9),
        "gelu float32, G/s": rate(lambda: torch.nn.functional.gelu(tensor), single.size / 1e9),
    }
    for c, weights in V.items():
        work = 2e-9 * few.shape[0] * D * c
        found[f"64 × {D} × {c} float64, Gflop/s"] = rate(lambda w=weights: few @ w, work)
    n = len(single)
    found["sgemm, Gflop/s"] = rate(lambda: sgemm(1.0, B.T, single.T), 2e-9 * n * WIDTH**2)
    found["ssyrk, Gflop/s"] = rate(lambda: ssyrk(1.0, single.T), 1e-9 * n * WIDTH**2)
    found["dsyrk, Gflop/s"] = rate(lambda: dsyrk(1.0, real.T), 1e-9 * len(real) * D**2)
    return found


def shares(found: dict[str, float], rows: int = 50_000) -> dict[str, dict[str, float]]:
    """Seconds of each part of a round, from the rates alone."""
    head = {c: 8e-9 * (D * D / 2 + 3 * D * c) for c in (10, 100)}  # GB of its file
    rounds = {}
    for c in (10, 100):
        rounds[f"softmax, {c} classes"] = {
            "products": 4e-9 * rows * D * c / found[f"64 × {D} × {c} float64, Gflop/s"],
            "int16 → float64": 2e-9 * rows * D / found["int16 → float64, GB/s"],
            "exp": 1e-9 * rows * c / found["exp float64, G/s"],
            "SHA-256": head[c] / found["SHA-256, GB/s"],
        }
    thin = 10e-9 * rows * WIDTH * 100
    rounds["DeepAFL layer, 100 classes"] = {
        "products": (2e-9 * rows * WIDTH**2 + thin) / found["sgemm, Gflop/s"],
        "symmetric": 1e-9 * rows * WIDTH**2 / found["ssyrk, Gflop/s"],
        "gelu": 1e-9 * rows * WIDTH / found["gelu float32, G/s"],
        "SHA-256 of 10 layers": 2 * 0.033 / found["SHA-256, GB/s"],
    }
    return rounds


def main(*kinds: str) -> None:
    os.environ.update(ALONE)
    print(machine())
    for kind in kinds or ("", "Haswell", "Zen"):
        os.environ.pop("OPENBLAS_CORETYPE", None)
        if kind:
            os.environ["OPENBLAS_CORETYPE"] = kind
        names, *rates = " ".join(fresh(__file__)).split("|")
        found = dict(zip(names.split(";"), map(float, rates), strict=True))
        print(f"\nkernels: {kind or 'as chosen'}")
        for name, value in found.items():
            print(f"  {name:32} {value:8.2f}")
        for name, seconds in shares(found).items():
            whole = sum(seconds.values())
            said = ", ".join(f"{part} {took / whole:.0%}" for part, took in seconds.items())
            print(f"  {name}: {whole:.3f} s: {said}")


if __name__ == "__main__":
    if "--child" in sys.argv:
        every = parts()
        print(";".join(every) + "|" + "|".join(map(str, every.values())))
    else:
        main(*sys.argv[1:])
