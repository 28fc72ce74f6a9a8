"""split: two files that hold every row once, classes in proportion, no group on both sides."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from conftest import embeddings
from hypothesis import given
from hypothesis import strategies as st

import afltool
from afltool.errors import InvalidDataError, MismatchError, OutputExistsError, UsageError
from afltool.files.features import features_digest, open_features
from afltool.partitions import groups_for_testing, rows_for_testing

SHARES = st.floats(0.01, 0.99)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), SHARES, st.integers(0, 99))
def test_rows_are_drawn_in_proportion_within_each_class(labels, share, seed):
    y = np.array(labels)
    chosen = rows_for_testing(y, share, seed)
    assert chosen.sum() == round(share * len(y))
    taken, rows = np.bincount(y[chosen], minlength=6), np.bincount(y, minlength=6)
    assert (np.abs(taken - share * rows) < 1).all()


@given(st.lists(st.integers(1, 20), min_size=2, max_size=60), SHARES, st.integers(0, 99))
def test_groups_are_whole_and_the_share_is_as_near_as_half_a_group(sizes, share, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    chosen = groups_for_testing(np.zeros(len(groups), int), groups, share, seed)
    for group in range(len(sizes)):
        assert len(set(chosen[groups == group])) == 1
    assert abs(chosen.sum() - share * len(groups)) <= max(sizes) / 2 + 1e-9


def test_groups_keep_the_classes_in_proportion():
    """300 patients of one class each: either class is cut at 20 %, over many seeds."""
    rng = np.random.default_rng(0)
    sizes, sick = rng.integers(1, 12, 300), rng.random(300) < 0.25
    groups = np.repeat(np.arange(300), sizes)
    y = sick[groups].astype(int)
    shares = np.array(
        [[groups_for_testing(y, groups, 0.2, seed)[y == k].mean() for k in (0, 1)]
         for seed in range(20)]
    )  # fmt: skip
    assert np.abs(shares - 0.2).max() < 0.02
    one, other = (groups_for_testing(y, groups, 0.2, seed) for seed in (1, 2))
    assert (one != other).any()


def test_every_row_is_as_likely_as_every_other():
    y = np.arange(200) % 2
    often = np.mean([rows_for_testing(y, 0.25, seed) for seed in range(400)], axis=0)
    assert often.mean() == 0.25
    assert np.abs(often - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 400)


# ---------------------------------------------------------------- files


def read(path):
    with open_features(path) as rows:
        values = rows.stored(0, len(rows))
        return values, rows.labels, rows.row_ids, rows.header


def pooled(parts):
    """Digest of the rows of some files together, in the order of their ids."""
    values, labels, ids = (np.concatenate([read(p)[k] for p in parts]) for k in range(3))
    order = np.argsort(ids)
    return features_digest(values[order], labels[order], ids[order])


@pytest.fixture
def patients(road, tmp_path):
    """A table that gives every training row a patient, five rows each."""
    table = tmp_path / "patients.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "patient"])
        ids = read(road.train)[2]
        writer.writerows([name.decode(), f"p{k % 120}"] for k, name in enumerate(ids))
    return table


@pytest.mark.parametrize("grouped", [False, True])
def test_both_parts_together_are_the_file(road, patients, tmp_path, cli, grouped):
    more = ["--group", f"{patients}:patient"] if grouped else []
    done = cli("split", road.train, "--test", 0.3, *more, "-o", tmp_path)
    parts = [tmp_path / "train-train.h5", tmp_path / "train-test.h5"]
    assert done.stdout.split() == list(map(str, parts))
    assert pooled(parts) == pooled([road.train])
    for part in parts:
        assert afltool.verify(part)["intact"]
    train, test = (read(part) for part in parts)
    assert len(test[1]) == pytest.approx(0.3 * 600, abs=3 if grouped else 0)
    if grouped:
        patient = dict(csv.reader(patients.read_text().splitlines()))
        sides = [{patient[name.decode()] for name in part[2]} for part in (train, test)]
        assert not sides[0] & sides[1]
        assert len(sides[0] | sides[1]) == 120


def test_sums_of_the_parts_add_up_to_those_of_the_file(road, tmp_path):
    parts = afltool.split(road.train, tmp_path)
    stats = [
        afltool.local_stats(part, "linear", tmp_path / "s", client=part.stem) for part in parts
    ]
    total = afltool.aggregate(stats, tmp_path / "total.h5")
    assert afltool.info(total)["digest"] == afltool.info(road.total)["digest"]


def test_a_cut_depends_on_ids_and_labels_and_not_on_features_or_order(road, tmp_path):
    """Another backbone's features of the same rows, in another order, are cut alike."""
    held = dict(np.load(road.embeddings))
    ids = np.array([name.decode() for name in read(road.train)[2]])
    order = np.random.default_rng(0).permutation(600)
    np.savez(tmp_path / "other.npz", x=np.sin(held["x"][order]), y=held["y"][order],
             row_ids=ids[order])  # fmt: skip
    other = afltool.import_embeddings(tmp_path / "other.npz", tmp_path / "other.h5")
    first, second = (afltool.split(p, tmp_path / "parts", seed=3) for p in (road.train, other))
    for one, again in zip(first, second, strict=True):
        assert set(read(one)[2].tolist()) == set(read(again)[2].tolist())
    assert not np.array_equal(np.sort(read(second[0])[2]), read(second[0])[2]), "the file's order"


def test_running_again_is_up_to_date_and_another_cut_is_refused(road, tmp_path, cli):
    train, test = afltool.split(road.train, tmp_path)
    times = [p.stat().st_mtime_ns for p in (train, test)]
    test.unlink()
    afltool.split(road.train, tmp_path)
    assert train.stat().st_mtime_ns == times[0], "it was whole"
    assert test.exists()
    before = test.read_bytes()
    for more in (["--seed", 1], ["--test", 0.3]):
        done = cli("split", road.train, *more, "-o", tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "made differently" in done.stderr
    assert test.read_bytes() == before
    done = cli("split", road.train, "--seed", 1, "-o", tmp_path, "--overwrite")
    made = [afltool.info(path)["source"]["split"] for path in done.stdout.split()]
    assert made == ["train", "test"]
    with pytest.raises(OutputExistsError):
        afltool.split(road.train, tmp_path)


def test_another_table_of_groups_is_another_cut(road, patients, tmp_path):
    afltool.split(road.train, tmp_path, group=f"{patients}:patient")
    text = patients.read_text().replace("p7\n", "p8\n")
    patients.write_text(text)
    with pytest.raises(OutputExistsError, match="made differently"):
        afltool.split(road.train, tmp_path, group=f"{patients}:patient")


def test_the_parts_lie_beside_the_file_and_know_where_they_come_from(tmp_path):
    whole = afltool.import_embeddings(embeddings(tmp_path / "x.npz", 50), tmp_path / "x.h5")
    train, test = afltool.split(whole, test=0.5)
    assert (train, test) == (tmp_path / "x-train.h5", tmp_path / "x-test.h5")
    found, origin = afltool.info(test), afltool.info(whole)
    assert found["source"]["split_from"] == {
        "digest": origin["digest"], "part": "test", "test": 0.5, "seed": 0
    }  # fmt: skip
    assert found["space"] == origin["space"]
    assert (found["rows"], found["classes"]) == (25, origin["classes"])


def test_what_cannot_be_cut_is_refused(road, patients, tmp_path, cli):
    def refused(match, error, **options):
        with pytest.raises(error, match=match):
            afltool.split(road.train, tmp_path / "none", **options)
        assert not (tmp_path / "none").exists()

    one = tmp_path / "one.csv"
    lines = [line.split(",")[0] + ",a" for line in patients.read_text().splitlines()[1:]]
    one.write_text("\n".join(["row,patient", *lines]))
    refused("none of the 600 rows in 1 groups", InvalidDataError, group=f"{one}:patient")
    refused("for testing would have none", InvalidDataError, test=1e-6)
    refused("for training would have none", InvalidDataError, test=1 - 1e-6)
    refused("TABLE:COLUMN", UsageError, group=str(one))
    one.write_text("\n".join(["row,patient", *lines[:-1]]))
    refused("missing: 1", MismatchError, group=f"{one}:patient")
    done = cli("split", road.total, "-o", tmp_path / "none")
    assert done.exit_code == 2
    assert "expected a features file" in done.stderr
