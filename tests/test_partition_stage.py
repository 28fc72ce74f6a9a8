"""The partition stage over files: binding to rows, tables in and out, held-out clients."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.partitions import load_partition
from afltool.files.statistics import load_statistics


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    return features(folder / "train.h5", np.random.default_rng(0))


def features(path, rng, n=400, order=None, backbone="import"):
    """n rows of 3 classes, in the given order; row ids go with the rows."""
    rows = np.random.default_rng(1)
    x, y = rows.normal(size=(n, 6)), rows.integers(0, 3, n)
    ids = np.array([f"row/{i:04d}" for i in range(n)])
    order = np.arange(n) if order is None else order
    np.savez(path.with_suffix(".npz"), x=x[order], y=y[order], row_ids=ids[order])
    return afltool.import_embeddings(path.with_suffix(".npz"), path, backbone=backbone)


def test_the_same_rows_in_any_order_and_of_any_backbone_give_the_same_partition(train, tmp_path):
    order = np.random.default_rng(5).permutation(400)
    other = features(tmp_path / "other.h5", None, order=order, backbone="another")
    a = afltool.partition(train, tmp_path / "a.h5", alpha=0.1, clients=20, seed=3)
    b = afltool.partition(other, tmp_path / "b.h5", alpha=0.1, clients=20, seed=3)
    assert afltool.info(a)["digest"] == afltool.info(b)["digest"]
    assert afltool.info(a)["rows_digest"] == afltool.info(b)["rows_digest"]


def test_one_partition_serves_many_orders_and_backbones(train, tmp_path):
    order = np.random.default_rng(5).permutation(400)
    other = features(tmp_path / "other.h5", None, order=order)
    clients = afltool.partition(train, tmp_path / "c.h5", alpha=0.1, clients=20)
    for k in range(3):
        pair = [
            afltool.local_stats(
                f, "linear", tmp_path / f"{f.stem}{k}.h5", partition=clients, only=str(k), sum=True
            )
            for f in (train, other)
        ]
        assert afltool.info(pair[0])["digest"] == afltool.info(pair[1])["digest"]


def test_a_golden_digest(train, tmp_path):
    path = afltool.partition(train, tmp_path / "g.h5", alpha=0.1, clients=20, seed=3)
    assert afltool.info(path)["digest"] == GOLDEN


GOLDEN = "781d96b568ad92a524e694212003ce07e7dc3a2aadb41657f110664aadb24207"


def test_info_counts_rows_and_classes_of_every_client(train, tmp_path):
    path = afltool.partition(
        train, tmp_path / "c.h5", scheme="shards", shards_per_client=1, clients=9
    )
    found = afltool.info(path)
    assert sum(found["rows_per_client"]) == 400
    assert len(found["rows_per_client"]) == len(found["classes_per_client"]) == 9
    assert max(found["classes_per_client"]) <= 2
    assert 0 < found["mean_total_variation"] <= 1


def test_a_number_that_is_a_place_and_another_name_chooses_no_client(train, tmp_path):
    clients = {"row": [f"row/{i:04d}" for i in range(400)], "client": np.arange(400) % 3 + 1}
    pd.DataFrame(clients).to_csv(tmp_path / "t.csv", index=False)
    dealt = afltool.partition(train, tmp_path / "c.h5", scheme="file", table=tmp_path / "t.csv")
    assert load_partition(dealt).names == ("1", "2", "3")

    def chosen(only):
        out = tmp_path / f"{only.replace('/', ' of ')}.h5"
        total = afltool.local_stats(train, "linear", out, partition=dealt, only=only, sum=True)
        return afltool.info(total)["client_names"]

    for only in ("1", "0-1"):
        with pytest.raises(UsageError, match=r"'1' is at place 0 \(from 0\), and at place 1 is"):
            chosen(only)
    assert chosen("0") == chosen("0/3") == ["1"]
    assert chosen("0-2") == ["1", "2", "3"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_what_is_exported_comes_back_as_the_same_assignment(train, tmp_path, suffix):
    table = tmp_path / f"t{suffix}"
    path = afltool.partition(train, tmp_path / "c.h5", alpha=0.01, clients=30, export=table)
    again = afltool.partition(train, tmp_path / "again.h5", scheme="file", table=table, clients=30)
    first, second = load_partition(path), load_partition(again)
    assert np.array_equal(first.client, second.client)
    assert first.names == second.names
    assert (np.bincount(first.client, minlength=30) == 0).any(), "no empty client: a weak test"


def test_a_partition_by_a_table_is_exported_by_the_same_command(train, tmp_path, cli):
    path, table = tmp_path / "c.h5", tmp_path / "t.csv"
    assert cli("partition", train, "--clients", 3, "--alpha", 1, "-o", path).exit_code == 0
    drawn = ["partition", train, "--clients", 3, "--alpha", 1, "-o", path]
    assert cli(*drawn, "--export", table).exit_code == 0, "it is kept, and exported"
    by_table = ["partition", train, "--scheme", "file", "--table", table, "--clients", 3]
    again = tmp_path / "again.csv"
    made = cli(*by_table, "-o", tmp_path / "again.h5", "--export", again)
    assert made.exit_code == 0, made.output
    assert again.read_bytes() == table.read_bytes()


def test_clients_can_be_the_values_of_a_column(train, tmp_path):
    names = np.array(["St. Mary/Ost", "Nord", "Süd"])
    ids = [f"row/{i:04d}" for i in range(400)]
    owner = names[np.arange(400) % 3]
    table = tmp_path / "sites.csv"
    pd.DataFrame({"row": ids, "hospital": owner}).sample(frac=1, random_state=0).to_csv(table)
    path = afltool.partition(
        train, tmp_path / "c.h5", scheme="by-attribute", table=table, column="hospital"
    )
    p = load_partition(path)
    assert [p.names[k] for k in p.client[:3]] == list(names)
    stats = afltool.local_stats(train, "linear", tmp_path / "stats", partition=path)
    assert len(list(stats.iterdir())) == 3
    total = afltool.aggregate([stats], tmp_path / "total.h5")
    assert sorted(afltool.info(total)["client_names"]) == sorted(names)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t[1:], MismatchError, "missing: 1, such as 'row/0000'"),
        (lambda t: pd.concat([t, t[:1]]), InvalidDataError, "row 'row/0000' is given more than"),
        (
            lambda t: t.rename(columns={"client": "who"}),
            InvalidDataError,
            "expected the columns client, found no client",
        ),
        (lambda t: t.assign(client=[None, *[1] * 399]), InvalidDataError, "row 'row/0000' has no"),
        (
            lambda t: pd.concat([t, pd.DataFrame({"row": ["x"], "client": [1]})]),
            MismatchError,
            "not in the features: 1",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(train, tmp_path, change, error, message):
    good = pd.DataFrame({"row": [f"row/{i:04d}" for i in range(400)], "client": 1})
    change(good).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(error, match=message):
        afltool.partition(train, tmp_path / "c.h5", scheme="file", table=tmp_path / "t.csv")
    assert not (tmp_path / "c.h5").exists()


def test_a_table_where_none_belongs_and_none_where_one_does(train, tmp_path):
    with pytest.raises(UsageError, match="needs --table"):
        afltool.partition(train, tmp_path / "c.h5", scheme="file")
    with pytest.raises(UsageError, match="does not take --table"):
        afltool.partition(train, tmp_path / "c.h5", clients=3, alpha=1.0, table="t.csv")


def test_label_noise_is_recorded_and_trained_on(train, tmp_path):
    clean = afltool.partition(train, tmp_path / "a.h5", scheme="iid", clients=4)
    noisy = afltool.partition(train, tmp_path / "b.h5", scheme="iid", clients=4, label_noise=0.25)
    p = load_partition(noisy)
    assert (p.labels != p.effective_labels).sum() == 100
    assert afltool.info(noisy)["relabelled_rows"] == 100
    assert np.array_equal(p.client, load_partition(clean).client)
    totals = [
        afltool.local_stats(train, "linear", tmp_path / f"t{i}.h5", partition=c, sum=True)
        for i, c in enumerate((clean, noisy))
    ]
    a, b = (load_statistics(t) for t in totals)
    assert np.array_equal(a.arrays["gram"], b.arrays["gram"])
    assert not np.array_equal(a.arrays["cross"], b.arrays["cross"])
    assert b.class_counts.tolist() == np.bincount(p.effective_labels).tolist()


def test_held_out_clients_are_summed_apart_and_validate_the_ridge(train, tmp_path):
    clients = afltool.partition(train, tmp_path / "c.h5", scheme="iid", clients=20, held_out=0.1)
    assert len(afltool.info(clients)["held_out"]) == 2
    stats = afltool.local_stats(train, "linear", tmp_path / "stats", partition=clients)
    with pytest.raises(
        UsageError, match="2 of clients held out for validation: give --held-out FILE"
    ):
        afltool.aggregate([stats], tmp_path / "total.h5")
    total = afltool.aggregate([stats], tmp_path / "total.h5", held_out=tmp_path / "held.h5")
    assert afltool.info(total)["clients"] == 18
    assert afltool.info(tmp_path / "held.h5")["rows"] == 40
    head = afltool.solve(
        total,
        tmp_path / "h.h5",
        validate=tmp_path / "held.h5",
        head_options={"ridge": "1e-3:1e3:7"},
    )
    report = afltool.info(head)["report"]
    assert report["ridge_by"] == "held-out clients"
    assert all("validation_mse" in point for point in report["ridge_path"])
    with pytest.raises(MismatchError, match="held out and also in the total"):
        afltool.solve(total, tmp_path / "h2.h5", validate=total, head_options={"ridge": "auto"})


def test_sums_keep_held_out_clients_apart_too(train, tmp_path):
    clients = afltool.partition(train, tmp_path / "c.h5", scheme="iid", clients=20, held_out=0.1)
    with pytest.raises(UsageError, match="give --held-out FILE"):
        afltool.local_stats(train, "linear", tmp_path / "t.h5", partition=clients, sum=True)
    afltool.local_stats(
        train, "linear", tmp_path / "t.h5", partition=clients, sum=True, held_out=tmp_path / "v.h5"
    )
    assert afltool.info(tmp_path / "t.h5")["rows"] == 360
    assert afltool.info(tmp_path / "v.h5")["clients"] == 2


def test_an_unreachable_min_size_ends_with_the_numbers(train, tmp_path):
    from afltool.errors import NumericalError

    with pytest.raises(NumericalError, match=r"0\.01.*"):
        afltool.partition(train, tmp_path / "c.h5", alpha=0.01, clients=100, min_size=3)
    assert not (tmp_path / "c.h5").exists()


def test_the_json_export_is_a_list_of_records(train, tmp_path):
    table = tmp_path / "t.json"
    afltool.partition(train, tmp_path / "c.h5", scheme="iid", clients=4, export=table)
    records = json.loads(table.read_text())
    assert len(records) == 400
    assert set(records[0]) == {"row", "client", "label", "held_out"}
