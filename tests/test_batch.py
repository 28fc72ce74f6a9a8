"""Stages as tasks of a batch system: parts of the clients, trees of sums, threads, summaries."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import embeddings
from hypothesis import given
from hypothesis import strategies as st

import afltool
from afltool.errors import UsageError
from afltool.heads import make_options
from afltool.partitions import draw_clients
from afltool.values.names import Phase

MEASURED = Path(__file__).with_name("measured.py")


def parts_of(road, at, count, **more):
    """The clients in ``count`` parts, a file each."""
    return [
        afltool.local_stats(
            road.train, road.head0, at / f"{i}.h5", partition=road.clients, sum=True,
            **{"only": f"{i}/{count}", **more},
        )
        for i in range(count)
    ]  # fmt: skip


# ------------------------------------------------------------ parts of the clients


@pytest.mark.parametrize("count", [2, 9])
def test_parts_pool_to_the_whole(road, tmp_path, count):
    """Every client is in one part; the sum has the digest of all clients at once."""
    files = parts_of(road, tmp_path, count)
    total = afltool.aggregate(files, tmp_path / "total.h5")
    for key in ("digest", "recipe"):
        assert afltool.info(total)[key] == afltool.info(road.total)[key]
    names = [name for f in files for name in afltool.info(f)["client_names"]]
    assert sorted(names) == [str(k) for k in range(6)]


def test_parts_of_those_that_take_part(road, tmp_path):
    share = {"participation": 0.5, "participation_seed": 3}
    files = parts_of(road, tmp_path, 2, **share)
    total = afltool.aggregate(files, tmp_path / "total.h5")
    flat = afltool.local_stats(
        road.train, road.head0, tmp_path / "flat.h5", partition=road.clients, sum=True, **share
    )
    assert afltool.info(total)["clients"] == 3
    assert afltool.info(total)["digest"] == afltool.info(flat)["digest"]
    for only in ("2/2", "1/2/3"):
        with pytest.raises(UsageError, match=r"--only is I/N with I from 0 to N−1"):
            parts_of(road, tmp_path, 1, only=only)


@given(st.integers(1, 50), st.floats(0.01, 1), st.integers(0, 99), st.integers(0, 9))
def test_a_draw_is_of_its_size_and_the_second_of_a_layer_is_another(n, share, seed, layer):
    held = np.arange(n) % 4 == 3
    drawn, second = (draw_clients(held, share, seed, layer, turn) for turn in (0, 1))
    assert drawn == sorted(set(drawn)) == draw_clients(held, share, seed, layer)
    assert set(np.flatnonzero(held)) <= set(drawn) & set(second)
    training = int((~held).sum())
    assert len(drawn) - held.sum() == (training if share == 1 else max(1, round(share * training)))
    assert len(second) == len(drawn)
    assert (drawn != second) == (len(drawn) < n)


def test_the_rounds_of_a_layer_share_a_draw():
    none = np.zeros(10, bool)  # files of a federation that goes on depend on these draws
    assert draw_clients(none, 0.5, 3, 0) == [0, 1, 2, 6, 9]
    assert draw_clients(none, 0.5, 3, 1) == [1, 2, 4, 5, 8]
    assert draw_clients(none, 0.5, 3, 0, 1) == [3, 4, 7, 8, 9]

    def drawn(name, *phases):
        return [make_options(name).get_layer(Phase(phase))[0] for phase in phases]

    phases = ("weights-0", "block-1", "weights-1", "block-2", "weights-2")
    assert drawn("deepafl", *phases) == [0, 0, 1, 1, 2]
    assert drawn("softmax", "gram", "gradient-1", "gradient-2") == [0, 1, 2]
    assert drawn("safle", "histogram", "codes") == [0, 0]


# ------------------------------------------------------------ a tree over many clients


@pytest.mark.slow
def test_a_task_of_the_tree_needs_no_more_memory_for_more_files(tmp_path):
    """Sums of 4 and of 64 files of 512 features: at most 10 MB more (a file holds 1.3 MB)."""
    train = afltool.import_embeddings(
        embeddings(tmp_path / "e.npz", 2000, d=512), tmp_path / "f.h5"
    )
    clients = afltool.partition(train, tmp_path / "c.h5", scheme="iid", clients=640)
    files = [tmp_path / f"{i}.h5" for i in range(64)]
    for i, file in enumerate(files):
        afltool.local_stats(train, "linear", file, partition=clients, only=f"{i}/64", sum=True)
    for count in (4, 64):
        words = ["aggregate", *files[:count], "-o", tmp_path / f"t{count}.h5"]
        subprocess.run([sys.executable, MEASURED, tmp_path / "peaks", *words], check=True)
    peaks = [float(line.split()[0]) for line in (tmp_path / "peaks").read_text().splitlines()]
    assert peaks[1] < peaks[0] + 10


# ------------------------------------------------------------ how a command behaves in a job


@pytest.mark.slow
def test_a_jobs_processors_are_its_threads():
    """Of rows and of PyTorch; BLAS has one. OMP_NUM_THREADS of the user comes first."""
    code = (
        "from afltool.cli import use_given_cores; use_given_cores(); import torch, numpy\n"
        "from threadpoolctl import threadpool_info\n"
        "from afltool import parallel\n"
        "pools = {p['num_threads'] for p in threadpool_info() if p['user_api'] == 'blas'}\n"
        "print(min(parallel.available(), torch.get_num_threads()), *pools)"
    )
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    env |= {"SLURM_CPUS_PER_TASK": "2", "OMP_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert {int(n) for n in found.stdout.split()} == {1}, found.stderr
    assert len(found.stdout.split()) >= 2


def test_files_are_read_whatever_locks_are_held(road, tmp_path):
    """Network file systems have none, or stale ones."""
    with road.total.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert afltool.aggregate([road.total], tmp_path / "t.h5").exists()
