"""What runs on a GPU, here on CPU tensors and, where there is one, there: the same answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import known_problem

from afltool.errors import NumericalError
from afltool.heads import make_head
from afltool.linalg import accelerator, counts, ridge_search
from afltool.linalg.fixedpoint import FixedPoint

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
on_devices = pytest.mark.parametrize("device", DEVICES)


def codes_of(groups, rows, size):
    kind = np.uint8 if size <= 256 else np.uint16
    return np.random.default_rng(0).integers(0, size, (groups, rows)).astype(kind)


def counted(codes, size, device=None):
    pairs = np.ones((counts.pair_count(len(codes)), size - 1, size - 1), np.int64)
    if device is None:
        counts.add_pairs(codes, size, pairs)
    else:
        accelerator.add_pairs(codes, size, pairs, device)
    return pairs


@on_devices
@pytest.mark.parametrize("size", [2, 3, 8, 32, 300])
@pytest.mark.parametrize("groups", [1, 2, 9, 70])
@pytest.mark.parametrize("rows", [0, 1, 7, 500])
def test_counts_are_those_of_the_cpu_kernel(size, groups, rows, device):
    if size == 300 and groups == 70:
        groups = 5
    codes = codes_of(groups, rows, size)
    assert np.array_equal(counted(codes, size, device), counted(codes, size))


@on_devices
def test_tiles_and_blocks_change_nothing(monkeypatch, device):
    codes = codes_of(23, 400, 8)
    monkeypatch.setattr(accelerator, "TILE", 30)
    monkeypatch.setattr(accelerator, "ROWS", 37)
    assert np.array_equal(counted(codes, 8, device), counted(codes, 8))


@on_devices
def test_the_largest_count_is_exact(device):
    """All rows share every code: no count of int8 or float16 would hold them."""
    rows = 70_000
    codes = np.ones((4, rows), np.uint8)
    assert (counted(codes, 2, device) == rows + 1).all()


@on_devices
def test_sides_and_addresses_are_those_that_int8_products_want(monkeypatch, device):
    """CUDA refuses fewer than 17 rows and sides off 8, and has been wrong off 4."""
    seen, product = [], torch._int_mm

    def watched(a, b):
        seen.append((*a.shape, *b.shape, a.data_ptr(), b.data_ptr()))
        return product(a, b)

    monkeypatch.setattr(torch, "_int_mm", watched)
    monkeypatch.setattr(accelerator, "TILE", 50)
    for groups, rows, size in ((9, 77, 8), (1, 1, 2), (3, 100, 102)):
        counted(codes_of(groups, rows, size), size, device)
    assert len(seen) > 4
    assert all(rows > 16 for rows, *_ in seen)
    assert all(number % 16 == 0 for call in seen for number in call)


@on_devices
@pytest.mark.parametrize("tile", [1, 2, 4])
@pytest.mark.parametrize("row", [0, 33, 69])
def test_a_wrong_product_is_refused(monkeypatch, device, tile, row):
    """One count off by one, in one of four tiles."""
    product, calls = torch._int_mm, []

    def wrong(a, b):
        found = product(a, b)
        calls.append(1)
        found[row, row] += len(calls) == tile
        return found

    monkeypatch.setattr(torch, "_int_mm", wrong)
    monkeypatch.setattr(accelerator, "TILE", 70)
    with pytest.raises(NumericalError, match=r"1 of 70 rows .* CUDA_VISIBLE_DEVICES="):
        counted(codes_of(40, 300, 8), 8, device)
    assert len(calls) == tile


@on_devices
def test_factors_solve_as_lapack_does(device):
    p = known_problem(60, 25, 3, 100.0, seed=0)
    lower = np.tril(p.G)
    factor = accelerator.Factor(lower, device)
    assert np.allclose(factor.solve(p.H), np.linalg.solve(p.G, p.H), rtol=1e-9)
    half = np.linalg.solve(np.linalg.cholesky(p.G), p.H)
    assert np.allclose(factor.half(p.H), half, rtol=1e-9)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        accelerator.Factor(-p.G, device)


def rows(n=300):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 6)) * (0.2 + y[:, None])
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


@on_devices
def test_the_head_takes_the_device_that_is_there(monkeypatch, device):
    """Equal digests of the totals, equal weights up to rounding, the same words on failure."""
    monkeypatch.setattr(accelerator, "gpu", lambda: None)
    options = {"thresholds": "range:-2:2", "experts": 7, "ridge": "auto", "with_linear": True}
    head = make_head("safle", options).bind(6, 3)
    X, y = rows()
    here = head.statistics(X, y)
    solved = head.absorb(here)
    used = []
    for name in ("add_pairs", "Factor"):
        inner = getattr(accelerator, name)
        monkeypatch.setattr(accelerator, name, lambda *a, i=inner, n=name: used.append(n) or i(*a))
    monkeypatch.setattr(accelerator, "gpu", lambda: device)
    there = head.statistics(X, y)
    assert there.digest() == here.digest()
    assert np.allclose(head.absorb(there).scores(X), solved.scores(X), atol=1e-9)
    assert set(used) == {"add_pairs", "Factor"}
    assert head.absorb(there).report.get("device", "cpu") == device
    with pytest.raises(NumericalError, match="not positive definite"):
        ridge_search._factor(-np.eye(3), np.zeros(3), 0.0)


def test_without_memory_on_the_device_the_cpu_counts(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10, 20))
    with caplog.at_level("INFO", "afltool"):
        assert not accelerator.fits("cuda", 1000, "counts")
    assert "do not fit" in caplog.text
    assert not accelerator.fits(None, 0, "counts")
    assert accelerator.fits("cpu", 0, "counts")


def test_a_machine_without_a_driver_does_not_load_torch(monkeypatch):
    def none(name):
        raise OSError(name)

    monkeypatch.setattr(accelerator.ctypes, "CDLL", none)
    accelerator.gpu.cache_clear()
    assert accelerator.gpu() is None
    accelerator.gpu.cache_clear()
