"""From embeddings to a checked head by files: laws that hold however rows were dealt and added."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import embeddings
from scipy import linalg

import afltool
from afltool.errors import MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.files.statistics import load_statistics

SCHEMES = {
    "iid": {"scheme": "iid"},
    "dirichlet": {"scheme": "dirichlet", "alpha": 0.01},
    "shards": {"scheme": "shards", "shards_per_client": 1},
}


def digest(path):
    return afltool.info(path)["digest"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """2,000 rows of 12 features and 5 classes."""
    at = tmp_path_factory.mktemp("rows")
    raw = embeddings(at / "rows.npz", 2000, d=12, classes=5)
    return afltool.import_embeddings(raw, at / "rows.h5")


@pytest.fixture(scope="module")
def pooled(rows, tmp_path_factory):
    """Total and head of one client that has every row."""
    at = tmp_path_factory.mktemp("pooled")
    total = afltool.local_stats(rows, "linear", at / "total.h5", client="all", sum=True)
    return total, afltool.solve(total, at / "head.h5", threads=1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_total_and_head_do_not_depend_on_the_partition(rows, pooled, tmp_path, scheme):
    for clients in (1, 10, 100):
        at = tmp_path / f"{clients}"
        dealt = afltool.partition(rows, at / "c.h5", clients=clients, **SCHEMES[scheme])
        total = afltool.local_stats(rows, "linear", at / "t.h5", partition=dealt, sum=True)
        head = afltool.solve(total, at / "h.h5", threads=1)
        assert (digest(total), digest(head)) == (digest(pooled[0]), digest(pooled[1]))
        assert afltool.info(total)["clients"] == clients
        if clients == 10:
            classes = max(afltool.info(dealt)["classes_per_client"])
            assert (classes == 5) == (scheme == "iid"), "the premise: they are really different"


def test_neither_blocks_nor_groups_of_clients_change_anything(
    rows, pooled, tmp_path, monkeypatch, small_blocks
):
    """Rows in blocks of 256; all clients in one group, some in each, every client on its own."""
    small_blocks(256, 12)
    dealt = afltool.partition(rows, tmp_path / "c.h5", clients=12, **SCHEMES["dirichlet"])
    of_clients = afltool.info(dealt)["rows_per_client"]
    assert 0 in of_clients, "the premise: some clients have no rows"
    assert max(of_clients) > 300 > min(n for n in of_clients if n)
    for buffer in (10**9, 24 * 300, 1):
        monkeypatch.setattr("afltool.files.partitions.BUFFER_BYTES", buffer)
        at, how = tmp_path / str(buffer), {"partition": dealt}
        total = afltool.local_stats(rows, "linear", at / "t.h5", sum=True, **how)
        assert digest(total) == digest(pooled[0])
        stats = afltool.local_stats(rows, "linear", at / "s", **how)
        assert digest(afltool.aggregate([stats], at / "a.h5")) == digest(pooled[0])
        assert [afltool.info(p)["rows"] for p in sorted(stats.iterdir())] == of_clients


def test_any_order_and_grouping_gives_the_same_total(road, tmp_path):
    files = sorted(road.stats.iterdir())
    expected = load_statistics(road.total)
    rng = np.random.default_rng(0)
    for number in range(4):
        parts = list(rng.permutation(files))
        while len(parts) > 1:  # a random tree: add up some, put the sum back
            size = int(rng.integers(2, len(parts) + 1))
            chosen, parts = parts[:size], parts[size:]
            out = tmp_path / f"{number}-{len(parts)}.h5"
            parts.insert(int(rng.integers(0, len(parts) + 1)), afltool.aggregate(chosen, out))
        found = load_statistics(parts[0])
        assert found.digest() == expected.digest()
        assert found.clients == expected.clients


def test_real_silos_add_up_to_the_pooled_file(tmp_path):
    """Sites with other files, row ids and sizes; one has a single class of the shared list."""
    (tmp_path / "classes.txt").write_text("cat\ndog\neel\n")
    rng = np.random.default_rng(3)
    y = np.repeat(["cat", "dog", "eel"], [60, 50, 40])
    x = rng.normal(size=(150, 7)) + rng.normal(size=(3, 7))[np.repeat([0, 1, 2], [60, 50, 40])]
    sites = {"north": range(60), "south": range(60, 101), "east": range(101, 150)}
    stats = []
    for name, part in {**sites, "pooled": range(150)}.items():
        np.savez(tmp_path / f"{name}.npz", x=x[part], y=y[part])
        path = afltool.import_embeddings(tmp_path / f"{name}.npz", tmp_path / f"{name}.h5",
                                         classes=tmp_path / "classes.txt")  # fmt: skip
        out = tmp_path / f"{name}-stats.h5"
        stats.append(afltool.local_stats(path, "linear", out, client=name, sum=True))
    total = afltool.aggregate(stats[:3], tmp_path / "total.h5")
    assert digest(total) == digest(stats[3])
    assert afltool.info(total)["client_names"] == sorted(sites)


def test_the_sums_are_of_the_stored_integers_and_the_head_is_the_centralised_fit(rows, tmp_path):
    dealt = afltool.partition(rows, tmp_path / "c.h5", clients=100, **SCHEMES["shards"])
    head = afltool.head("linear", tmp_path / "head0.h5", head_options={"ridge": 0})
    total = afltool.local_stats(rows, head, tmp_path / "t.h5", partition=dealt, sum=True)
    found = load_head(afltool.solve(total, tmp_path / "h.h5"))[0].weights
    with open_features(rows) as f:
        values, y, bits = f.data[()].astype(np.int64), f.labels, f.bits
    sums, Y = load_statistics(total).arrays, np.eye(5, dtype=np.int64)[y]
    assert np.array_equal(sums["gram"], (values.T @ values)[np.tril_indices(12)])
    assert np.array_equal(sums["cross"], values.T @ Y)
    x = values * 2.0**-bits
    assert np.linalg.cond(x.T @ x) <= 1e4
    expected = linalg.lstsq(x, Y, lapack_driver="gelsd")[0]
    assert np.abs(found - expected).max() <= 1e-9 * np.abs(expected).max()


def test_float32_totals_are_equal_up_to_rounding(road, tmp_path):
    train = afltool.import_embeddings(road.embeddings, tmp_path / "f.h5", dtype="float32")
    found = []
    for clients in (1, 12):
        at = tmp_path / str(clients)
        dealt = afltool.partition(train, at / "c.h5", scheme="iid", clients=clients)
        total = afltool.local_stats(train, "linear", at / "t.h5", partition=dealt, sum=True)
        parts = afltool.local_stats(train, "linear", at / "s", partition=dealt)
        found += map(load_statistics, (total, afltool.aggregate([parts], at / "a.h5")))
    assert not found[0].exact
    for other in found[1:]:
        for name, array in found[0].arrays.items():
            assert np.allclose(other.arrays[name], array, rtol=1e-12, atol=1e-9)
        assert np.array_equal(other.class_counts, found[0].class_counts)


# ---------------------------------------------------------------- who leaves, who is held out


def test_subtracting_gives_the_total_that_never_had_it_and_adding_gives_it_back(road, tmp_path):
    files = sorted(road.stats.iterdir())
    never = afltool.aggregate([*files[:2], *files[3:]], tmp_path / "never.h5")
    after = afltool.aggregate([road.total], tmp_path / "after.h5", subtract=[files[2]])
    a, b = load_statistics(after), load_statistics(never)
    assert a.clients == b.clients
    for name in b.arrays:
        assert a.arrays[name].tobytes() == b.arrays[name].tobytes()
    part = afltool.aggregate(files[1:4], tmp_path / "part.h5")
    less = afltool.aggregate([road.total], tmp_path / "less.h5", subtract=[part])
    assert digest(less) == digest(afltool.aggregate([files[0], *files[4:]], tmp_path / "others.h5"))
    again = afltool.aggregate([less, files[3], files[2], files[1]], tmp_path / "again.h5")
    assert digest(again) == digest(road.total) != digest(less)


def test_subtracting_twice_or_a_stranger_and_adding_a_client_twice_is_refused(road, tmp_path, cli):
    files = sorted(road.stats.iterdir())
    stranger = afltool.local_stats(
        road.test, road.head0, tmp_path / "stranger.h5", client="stranger", sum=True
    )
    for minus, name in (([files[2], files[2]], "client 2"), ([stranger], "client stranger")):
        options = [o for path in minus for o in ("--subtract", path)]
        done = cli("aggregate", road.total, *options, "-o", tmp_path / "x.h5")
        assert done.exit_code == 4
        for said in (name, str(minus[-1]), "cannot be subtracted"):
            assert said in done.stderr
    for a, b in itertools.combinations([files[:2], files[1:3], files[:3]], 2):
        sums = [
            afltool.aggregate(fs, tmp_path / f"{i}.h5", overwrite=True)
            for i, fs in enumerate((a, b))
        ]
        common = len({*a} & {*b})
        with pytest.raises(MismatchError, match=f"given twice \\({common} of its clients"):
            afltool.aggregate(sums, tmp_path / "x.h5")
    assert not (tmp_path / "x.h5").exists()


def test_held_out_clients_are_kept_apart(road, tmp_path):
    dealt = afltool.partition(road.train, tmp_path / "c.h5", scheme="iid", clients=10, held_out=0.3)
    held = set(afltool.info(dealt)["held_out"])
    assert len(held) == 3
    stats = afltool.local_stats(road.train, road.head0, tmp_path / "s", partition=dealt)
    with pytest.raises(UsageError, match=r"3 of clients held out .*--held-out FILE"):
        afltool.aggregate([stats], tmp_path / "all.h5")
    both, sums = ([tmp_path / f"{k}{name}.h5" for name in "tv"] for k in (0, 1))
    afltool.aggregate([stats], both[0], held_out=both[1])
    train, validation = (load_statistics(p) for p in both)
    assert {int(who.name) for who in validation.clients} == held
    assert {int(who.name) for who in train.clients} == set(range(10)) - held
    assert (train + validation).digest() == digest(road.total)
    afltool.local_stats(
        road.train, road.head0, sums[0], partition=dealt, sum=True, held_out=sums[1]
    )
    assert [digest(p) for p in sums] == [digest(p) for p in both]
    out, auto = tmp_path / "h.h5", {"ridge": "auto"}
    head = afltool.solve(both[0], out, validate=both[1], head_options=auto)
    assert load_head(head).report["ridge_by"] == "held-out clients"
    with pytest.raises(MismatchError, match="held out and also in the total"):
        afltool.solve(both[0], tmp_path / "w.h5", validate=both[0])
