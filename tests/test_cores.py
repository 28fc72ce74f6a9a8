"""Threads: results in order, memory, one thread of BLAS, the cores that a process may use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import afltool
from afltool import memory, parallel, system
from afltool.errors import InvalidDataError


def test_law_files_are_the_same_for_any_number_of_threads(road, tmp_path, cli):
    """Through the commands: clients one by one, their sum, the head, figures and predictions."""
    found = {}
    for threads in (1, 3):
        out, number = tmp_path / str(threads), ["--threads", threads]
        given = ["--train-features", road.train, "--test-features", road.test]
        how = ["--partition", road.clients, "--keep-clients", "--head", "safle", "--ridge", 1]
        assert cli("run", *given, *how, "-o", out, *number).exit_code == 0
        last, table = out / "head-final.h5", tmp_path / f"{threads}.csv"
        assert cli("predict", last, road.test, "-o", table, *number).exit_code == 0
        figures = json.loads((out / "06-metrics.json").read_text())
        alone = cli("evaluate", last, road.test, *number, "--json")
        assert json.loads(alone.stdout)["confusion"] == figures["confusion"]
        files = sorted(p for p in out.rglob("*.h5") if not p.is_symlink())
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

    with parallel.thread_limit(4):
        for got in parallel.map_threads(work, items()):
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
    with parallel.thread_limit(3), pytest.raises(InvalidDataError, match="row 3"):
        seen.extend(parallel.map_threads(work, range(9)))


def test_a_thread_of_the_pool_works_alone_and_an_inner_stage_keeps_the_threads_of_the_outer():
    with parallel.thread_limit(3):
        assert list(parallel.map_threads(lambda _: parallel.threads(), range(4))) == [1] * 4
        with parallel.thread_limit(5):
            assert parallel.threads() == 3
    assert parallel.threads() == 1


@pytest.mark.parametrize("share", [1, 3])
def test_no_more_items_are_under_way_than_fit_into_memory(share):
    """The later items need a larger share of it than the first ones."""
    free, lock, now, most = memory.available(), threading.Lock(), set(), []

    def work(n):
        with lock:
            now.add(n)
            most.append(len(now) if n > 3 else 0)
        time.sleep(0.003)
        with lock:
            now.remove(n)

    with parallel.thread_limit(4):
        sizes = parallel.map_threads(
            work, range(30), lambda n: int(free / (share + 0.5)) if n > 2 else 1
        )
        assert len(list(sizes)) == 30
    assert max(most[4:]) <= share


def test_blas_has_one_thread_in_a_process_that_has_not_loaded_scipy_yet():
    code = """
from afltool import parallel
with parallel.thread_limit(2):
    import scipy.linalg
    from threadpoolctl import threadpool_info
    found = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
print(found)
"""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert set(json.loads(done.stdout)) == {1}, done.stderr


def test_a_job_gives_as_many_threads_as_it_has_processors(monkeypatch):
    for name in parallel.LIMITS:
        monkeypatch.delenv(name, raising=False)
    assert 1 <= parallel.available() <= len(os.sched_getaffinity(0))
    for name in parallel.LIMITS:
        with monkeypatch.context() as patch:
            patch.setenv(name, "1,4")
            assert parallel.available() == 1


CONTROL_GROUPS = {  # what /proc/self/cgroup says, files with their texts, the cores that are left
    "its own group": ("0::/job/step\n", {"job/step/cpu.max": "150000 100000"}, 2),
    "a group above": ("0::/job/step\n", {"job/step/cpu.max": "max 100000",
                      "job/cpu.max": "300000 100000", "cpu.max": "800000 100000"}, 3),
    "another job's group": ("0::/job\n", {"other/cpu.max": "100000 100000"}, None),
    "a container": ("0::/docker/0a1b\n", {"cpu.max": "400000 100000"}, 4),
    "less than a core": ("0::/\n", {"cpu.max": "20000 100000"}, 1),
    "version 1": ("3:cpu,cpuacct:/job\n", {"cpu,cpuacct/job/cpu.max": "1000 1000"}, None),
    "no groups": (None, {}, None),
}  # fmt: skip


def test_control_groups_limit_the_cores(tmp_path):
    for case, (said, files, expected) in CONTROL_GROUPS.items():
        root = tmp_path / case
        named = {"sys/fs/cgroup/" + name: text for name, text in files.items()}
        for name, text in {**named, **({"proc/self/cgroup": said} if said else {})}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert system.quota(root) == expected, case
