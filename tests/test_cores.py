"""The bits of totals and heads do not depend on the number of threads: any head, any phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from rounds_of_heads import absorb

import afltool
from afltool import cores
from afltool.errors import InvalidDataError
from afltool.heads import make_head
from afltool.math.blas import cholesky_in_place
from afltool.math.gram import FixedPoint
from afltool.values.statistics import Context

THREADS = (1, 2, 3, 7)
HEADS = {
    "linear": ("linear", {"ridge": 1}),
    "lda": ("discriminant", {"rule": "lda", "shrinkage": 0.1}),
    "qda": ("discriminant", {"rule": "qda", "shrinkage": 0.1}),
    "naive-bayes": ("discriminant", {"rule": "naive-bayes"}),
    "random features": ("random-features", {"width": 60, "ridge": 1, "with_linear": True}),
    "random features fixed": ("random-features", {"width": 60, "ridge": 1, "compute": "fixed"}),
    "softmax": ("softmax", {"rounds": 2}),
    "softmax by L-BFGS": ("softmax", {"rounds": 4, "lbfgs": True}),
    "softmax of random features": ("softmax", {"rounds": 2, "features": "random", "width": 30}),
    "softmax of codes": ("softmax", {"rounds": 2, "features": "safle", "experts": 9}),
    "deepafl": ("deepafl", {"layers": 2, "width": 24}),
    "deepafl fixed": ("deepafl", {"layers": 2, "width": 24, "compute": "fixed"}),
    "deepafl incremental": ("deepafl", {"layers": 2, "width": 24, "incremental": True}),
    "safle": ("safle", {"experts": 12, "ridge": 1}),
    "hybrid": ("safle", {"experts": 12, "ridge": 1, "with_linear": True}),
    "thresholds": ("safle", {"experts": 12, "ridge": 1, "thresholds": "federated"}),
}
#: Blocks that do not divide evenly, of no row and of one row among them.
SIZES = (0, 170, 1, 93, 0, 130, 77, 17)


def blocks(real):
    rng = np.random.default_rng(0)
    for size in SIZES:
        y = rng.integers(0, 5, size)
        x = rng.normal(size=(size, 20)) + 0.5 * np.eye(5, 20)[y]
        whole = np.rint(x * 512).astype(np.int16)
        X = (whole / 512).astype(np.float32) if real else FixedPoint(whole, 9)
        yield X, y


def digests(name, options, real, threads):
    """Of the total and the head of every round."""
    head, found = make_head(name, options).bind(20, 5), []
    with cores.using(threads):
        while head.phase() is not None:
            total, _ = head.gather(blocks(real))
            total = replace(total, context=Context({"fraction_bits": None if real else 9}))
            head = absorb(head, total)
            found += [total.digest(), head.digest()]
    return found


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_law_totals_and_heads_have_the_same_bits_for_any_number_of_threads(head, real):
    name, options = HEADS[head]
    if real and options.get("compute") == "fixed":
        pytest.skip("needs fixed-point rows")
    alone = digests(name, options, real, 1)
    assert len(alone) >= 2
    for threads in THREADS[1:]:
        assert digests(name, options, real, threads) == alone, threads


@pytest.mark.parametrize("head", ["linear", "softmax", "deepafl", "safle"])
def test_law_files_are_the_same_for_any_number_of_threads(head, road, tmp_path, cli):
    """Through the commands: clients one by one, their sum, the head, figures and predictions."""
    more = {"softmax": ["--rounds", 2], "deepafl": ["--layers", 1, "--width", 16],
            "safle": ["--experts", 5]}.get(head, [])  # fmt: skip
    found = {}
    for threads in (1, 3):
        out = tmp_path / str(threads)
        given = ["--train-features", road.train, "--test-features", road.test]
        how = ["--partition", road.clients, "--keep-clients", "--head", head, *more, "--ridge", 1]
        how = how[: -2 if head == "softmax" else None]
        assert cli("run", *given, *how, "-o", out, "--threads", threads).exit_code == 0
        files = sorted(p for p in out.rglob("*.h5") if not p.is_symlink())
        table = tmp_path / f"{threads}.csv"
        last = out / "head-final.h5"
        assert cli("predict", last, road.test, "-o", table, "--threads", threads).exit_code == 0
        figures = json.loads((out / "06-metrics.json").read_text())
        alone = cli("evaluate", last, road.test, "--threads", threads, "--json")
        assert json.loads(alone.stdout)["confusion"] == figures["confusion"]
        counts = ["--counts", "--client", "a", "-o", tmp_path / f"counts-{threads}"]
        done = cli("evaluate", last, road.test, *counts, "--threads", threads)
        assert done.exit_code == 0, done.stderr
        digest = {str(p.relative_to(out)): afltool.info(p)["digest"] for p in files}
        found[threads] = digest, figures["confusion"], table.read_bytes()
    assert found[1] == found[3]
    assert len(found[1][0]) > 8


def test_results_come_in_the_order_of_the_items_and_few_are_under_way():
    begun, most = [], []

    def work(n):
        time.sleep(0.002 * (n % 3))
        return n

    def items():
        for n in range(40):
            begun.append(n)
            yield n

    with cores.using(4):
        for got in cores.each(work, items()):
            most.append(len(begun) - got)
    assert begun == list(range(40))
    assert max(most) <= 6


def test_the_first_error_in_the_order_of_the_rows_is_raised():
    def work(n):
        if n in (3, 5):
            time.sleep(0.05 if n == 3 else 0)
            raise InvalidDataError(f"row {n}")
        return n

    seen = []
    with cores.using(3), pytest.raises(InvalidDataError, match="row 3"):
        seen.extend(cores.each(work, range(9)))


def test_a_thread_of_the_pool_works_alone_and_an_inner_stage_keeps_the_threads_of_the_outer():
    with cores.using(3):
        assert list(cores.each(lambda _: cores.threads(), range(4))) == [1] * 4
        with cores.using(5):
            assert cores.threads() == 3
    assert cores.threads() == 1


def test_with_little_memory_fewer_threads_work_and_that_is_said(caplog):
    with cores.using(4):
        assert list(cores.each(lambda n: n, range(5), size=2**60, what="a test")) == [*range(5)]
    assert "4 threads would take" in caplog.text
    assert ": 1 work" in caplog.text


@pytest.mark.parametrize("side", [1, 1023, 1024, 1500])
def test_a_factor_has_the_same_bits_for_any_number_of_threads(side):
    X = np.random.default_rng(side).normal(size=(side + 50, side))
    G, found = X.T @ X, []
    for threads in (1, 2, 5):
        with cores.using(threads):
            A = G.copy()
            cholesky_in_place(A)
        found.append(np.tril(A))
    assert all(np.array_equal(one, found[0]) for one in found)
    assert np.allclose(found[0] @ found[0].T, G, rtol=1e-10, atol=1e-8)


def test_a_job_gives_as_many_threads_as_it_has_processors():
    code = "from afltool import cores; print(cores.available())"
    env = {k: v for k, v in os.environ.items() if k not in cores.LIMITS}
    for given, least in (({}, 1), ({"SLURM_CPUS_PER_TASK": "1"}, 1), ({"OMP_NUM_THREADS": "1"}, 1)):
        run = [sys.executable, "-c", code]
        found = int(subprocess.run(run, env=env | given, capture_output=True).stdout)
        assert found == 1 if given else least <= found <= len(os.sched_getaffinity(0))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["linear", "softmax", "deepafl", "random-features"])
def test_a_run_of_many_blocks_killed_in_any_phase_ends_with_the_same_bits(head, tmp_path):
    """Blocks of 12,000 × 1,024 numbers; --threads 2 is killed and 3 go on."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 8, 12_000)
    x = (rng.normal(size=(12_000, 1024)) + np.eye(8, 1024)[y]).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=y)
    train = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5")
    more = {"linear": ["--ridge", "1"], "softmax": ["--rounds", "2"],
            "deepafl": ["--layers", "1", "--width", "128"],
            "random-features": ["--width", "512", "--ridge", "1"]}[head]  # fmt: skip
    code = "from afltool.cli import main; main()"
    words = ["run", "--train-features", train, "--test-features", train, "--clients", "3"]
    words += ["--head", head, *more]

    def run(out, threads, seconds=None):
        command = [sys.executable, "-c", code, "-q", *words, "-o", out, "--threads", threads]
        done = subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL)
        try:
            return done.wait(seconds)
        except subprocess.TimeoutExpired:
            done.send_signal(signal.SIGKILL)
            return done.wait()

    assert run(tmp_path / "alone", 1) == 0
    for number, seconds in enumerate((0.7, 1.1, 1.6)):
        run(tmp_path / str(number), 2, seconds)
        assert run(tmp_path / str(number), 3) == 0
        for path in (tmp_path / "alone").rglob("*.h5"):
            other = tmp_path / str(number) / path.relative_to(tmp_path / "alone")
            assert afltool.info(other)["digest"] == afltool.info(path)["digest"], path.name
