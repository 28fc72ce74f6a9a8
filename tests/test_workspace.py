"""A run keeps what later rounds need: its files are those of single stages, nothing is left."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import embeddings
from hypothesis import given, settings
from hypothesis import strategies as st

import afltool
from afltool.errors import UsageError
from afltool.files.features import open_features
from afltool.memory import Carried, MemoryBudget, parse_size
from afltool.rendering.tables import print_summary
from afltool.runs.config import RunConfig
from afltool.stages.runner import Files

RUNS = {
    "deepafl": {"head": "deepafl", "layers": 2, "width": 24},
    "reconstruction": {"head": "deepafl", "layers": 1, "width": 16, "reconstruction": 0.5},
    "full gram": {"head": "deepafl", "layers": 1, "width": 24, "full_gram": True},
    "softmax": {"head": "softmax", "rounds": 2, "features": "random", "width": 40},
    "safle": {"head": "safle", "experts": 6},
    "clients": {"head": "safle", "experts": 6, "keep_clients": True},
    "drawn": {"head": "deepafl", "layers": 1, "width": 24, "participation": 0.6, "held_out": 0.2},
}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    at = tmp_path_factory.mktemp("rows")
    for name, n, seed in (("train", 1500, 1), ("test", 400, 2)):
        x = embeddings(at / f"{name}.npz", n, d=24, seed=seed)
        afltool.import_embeddings(x, at / f"{name}.h5")
    return {"train_features": at / "train.h5", "test_features": at / "test.h5"}


@pytest.fixture(autouse=True)
def _small_blocks(small_blocks):
    small_blocks(256, 24)  # 6 blocks


def run(split, out, name="deepafl", **more):
    return afltool.run(RunConfig(**split, clients=5, alpha=1.0, **{**RUNS[name], **more}), out)


def digests(folder):
    """Of every total and head, and the bytes of what people read."""
    files = sorted(folder.glob("0[3-5]-*.h5"))
    found = {p.name: afltool.verify(p)["digest"] for p in files}
    return {**found, "metrics": (folder / "06-confusion.csv").read_bytes()}


def stages(run_folder, out):
    """The same totals and heads by single stages, each of which reads its files."""
    names, head = {}, run_folder / "03-head0.h5"
    for number in range(1, 100):
        suffix = "" if number == 1 else f"-{number}"
        total, after = out / f"04-total{suffix}.h5", out / f"05-head{suffix}.h5"
        rows, clients = run_folder / "01-features-train.h5", run_folder / "02-clients.h5"
        afltool.local_stats(rows, head, total, partition=clients, sum=True)
        afltool.solve(total, after, head=head, head_options={})
        names |= {p.name: afltool.verify(p)["digest"] for p in (total, after)}
        head = after
        if afltool.info(after)["phase"] is None:
            return names
    raise AssertionError("no end")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_files_of_its_stages_whatever_memory_it_has(split, tmp_path, name):
    """Nothing fits into the memory, or the rows and some blocks, or all."""
    found = digests(run(split, tmp_path / "few", name, memory="150kB"))
    for memory in {"deepafl": ["0"], "drawn": ["0", "1GB"]}.get(name, []):
        assert digests(run(split, tmp_path / memory, name, memory=memory)) == found
    if name != "drawn":  # single stages are of all clients
        by_stage = stages(tmp_path / "few", tmp_path)
        assert by_stage.items() <= found.items()
        assert len(by_stage) == len(found) - 2  # all but the first head and the metrics


# ---------------------------------------------------------------- what is read


def bytes_read(work):
    """How many bytes this process reads while it works."""

    def so_far():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

    before = so_far()
    work()
    return so_far() - before


def test_a_run_reads_its_rows_once_and_none_of_the_files_that_it_wrote(split, tmp_path):
    big = embeddings(tmp_path / "big.npz", 20_000, d=24)
    rows = {**split, "train_features": afltool.import_embeddings(big, tmp_path / "big.h5")}
    size = rows["train_features"].stat().st_size
    run(rows, tmp_path / "warm")
    once = bytes_read(lambda: run(rows, tmp_path / "run"))
    again = bytes_read(lambda: run(rows, tmp_path / "small", memory="0"))
    assert once < 2 * size
    assert again > 5 * size, "the premise: without memory the rows are read in every round"


def test_rows_that_a_run_needs_again_stay_in_memory_and_nobody_writes_into_them(split, tmp_path):
    path = tmp_path / "f.h5"
    path.write_bytes(split["train_features"].read_bytes())
    with open_features(path) as rows:
        kept = np.concatenate([block for _, block in rows.iter_stored()])
    files = Files(MemoryBudget(10**8))
    for _ in range(2):
        with files.reading():
            data = files.features(path, again=True).data
        assert np.array_equal(data, kept)
        with pytest.raises(ValueError, match="read-only"):
            data[0, 0] = 1
        path.write_bytes(split["test_features"].read_bytes())  # a run goes on with what it has read
    with Files().reading() as none:
        assert not isinstance(none.features(path, again=True).data, np.ndarray), "not in a command"
        assert len(none.features(path)) == 400


# ---------------------------------------------------------------- memory


@given(
    st.integers(0, 4000), st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(1, 3)
)
@settings(max_examples=40, deadline=None)
def test_blocks_come_back_as_they_were_left_within_the_room(free, sizes, rounds):
    rng, room = np.random.default_rng(0), MemoryBudget(free)
    carried, left, kept = Carried(room=room), {}, set()
    for number in range(rounds):
        after = carried.following(f"key {number}")
        for block, n in enumerate(sizes):
            key = f"key {number - 1}"
            taken = carried.take(key, block, n)
            assert (taken is not None) == (block in kept)
            if taken is not None:
                assert taken.keys() == left[block].keys()
                assert all(np.array_equal(taken[k], a) for k, a in left[block].items())
            arrays = {"phi": rng.normal(size=(n, 5)), "hidden": rng.normal(size=(n, 3))}
            left[block] = {k: a.astype(np.float32) for k, a in arrays.items()}
            after.put(block, left[block])
            held = sum(a.nbytes for one in after.blocks.values() for a in one.values())
            assert held + room.free <= free
            assert room.free >= 0
        carried, kept = after, set(after.blocks)
    assert carried.take("another key", 0, sizes[0]) is None
    assert room.free == free
    after = Carried().following("k")
    after.put(0, {"phi": np.ones((4, 2))})
    assert after.take("k", 0, 5) is None, "rows of another number"


def test_memory_is_a_size(split):
    for text in ("", "8 potatoes", "-1GB", "50%", "1e400", "nan"):
        with pytest.raises(UsageError, match="--memory is a size such as 8GB"):
            RunConfig(**split, memory=text)
    told = {"0": 0, "8GB": 8e9, "1.5 MB": 1.5e6, "2k": 2e3, "3T": 3e12}
    assert {text: parse_size(text).bytes for text in told} == told


# ---------------------------------------------------------------- the exchange


def test_the_cheaper_exchange_is_chosen_and_said(split, tmp_path, capsys):
    told = afltool.info(run(split, tmp_path / "a") / "03-head0.h5")["options"]
    assert told["incremental"] is True
    summary = (tmp_path / "a" / "summary.json").read_text()
    assert '"exchange": "incremental"' in summary
    print_summary(json.loads(summary))
    assert "incremental sums" in " ".join(capsys.readouterr().err.split())
    full = run(split, tmp_path / "b", "full gram")
    assert afltool.info(full / "03-head0.h5")["options"]["incremental"] is False
    assert '"exchange": "full"' in (full / "summary.json").read_text()
    for more in ({"participation": 0.5}, {"incremental": False}, {"no_skip": True}):
        config = RunConfig(**split, **RUNS["deepafl"], **more)
        assert not config.all_head_options().get("incremental")
    for more in ({"head": "linear"}, {"head": "deepafl", "incremental": True}):
        with pytest.raises(UsageError, match="full-gram"):
            afltool.run(RunConfig(**split, full_gram=True, **more), tmp_path / "run")
