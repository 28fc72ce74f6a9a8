"""Tables and archives straight into run, local-stats, evaluate and predict; their store."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import afltool

N, TEST = 120, 40


RUN = ["--dtype", "float32", "--clients", 4, "--ridge", 1]


@pytest.fixture
def patients(tmp_path, monkeypatch):
    """A table of patients for training, one for testing, one without a diagnosis."""
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    rng = np.random.default_rng(0)
    age, sodium = rng.integers(20, 90, N), rng.normal(140, 4, N).round(1)
    ill = np.where(age + sodium + rng.normal(0, 4, N) > 195, "ill", "healthy")
    rows = pd.DataFrame({"age": age, "sodium": sodium, "sex": "f", "diagnosis": ill})
    rows[TEST:].to_csv(tmp_path / "train.csv", index=False)
    rows[:TEST].to_csv(tmp_path / "test.csv", index=False)
    rows[:TEST].drop(columns="diagnosis").to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


def given(at, suffix=".csv"):
    tables = ["--train-features", at / f"train{suffix}", "--test-features", at / f"test{suffix}"]
    return [*tables, "--y", "diagnosis"]


def test_a_column_that_a_table_lacks_is_named(patients, cli):
    for option in ("--y", "--x", "--row-ids"):
        words = ["import", patients / "train.csv", "--y", "diagnosis", option, "diagnose"]
        done = cli(*words, "-o", patients / "no.h5")
        assert (done.exit_code, done.stdout) == (3, "")
        assert "train.csv has no column 'diagnose': its columns are age, sodium" in done.stderr


def test_a_run_on_tables_is_that_on_imported_files(patients, cli):
    """The same features as by import, whatever the format; read once, then found again."""
    for name in ("train", "test"):
        rows = pd.read_csv(patients / f"{name}.csv")
        x = rows[["age", "sodium"]].to_numpy(float)
        np.savez(patients / f"{name}.npz", x=x, diagnosis=rows["diagnosis"].to_numpy(str))
    for suffix in (".csv", ".npz"):
        out = patients / f"run{suffix}"
        words = ["run", *given(patients, suffix), *RUN, "-o", out]
        done = cli(*words)
        assert done.exit_code == 0, done.stderr
        table, into = patients / f"train{suffix}", patients / f"{suffix}.h5"
        train = afltool.import_embeddings(table, into, y="diagnosis", dtype="float32")
        ours = afltool.info(out / "01-features-train.h5")
        assert ours["digest"] == afltool.info(train)["digest"]
        assert ours["classes"] == ["healthy", "ill"]
        before = {p: p.stat().st_mtime_ns for p in (patients / "store").rglob("*.h5")}
        again = cli(*words)
        assert again.exit_code == 0
        assert f"train{suffix}: imported as" in again.stderr
        assert {p: p.stat().st_mtime_ns for p in (patients / "store").rglob("*.h5")} == before
    changed = pd.read_csv(patients / "train.csv")
    changed.assign(age=changed["age"] + 1).to_csv(patients / "train.csv", index=False)
    other = cli("run", *given(patients), *RUN, "-o", patients / "run.csv")
    assert other.exit_code == 2
    assert "was made differently: inputs.features" in other.stderr


def test_what_is_wrong_with_a_table_is_said(patients, cli):
    """Options of tables beside feature files, a missing column, values beyond the range."""
    done = cli("run", *given(patients), *RUN, "-o", patients / "run")
    assert done.exit_code == 0
    head, rows = patients / "run/head-final.h5", patients / "run/01-features-test.h5"
    for words, code, said in (
        (["evaluate", head, rows, "--y", "diagnosis"], 2, "--y is for a table or an archive"),
        (["evaluate", head, patients / "test.csv", "--y", "outcome"], 3, "outcome"),
        (["evaluate", head, patients / "none.csv"], 3, "there is no file"),
        (["run", "--data", "digits", "--backbone", "resnet18", "--x", "a", "-o", "r"], 2,
         "--x is for tables and archives"),
        (["run", "--data", "digits", "--backbone", "resnet18", "--y", "a", "-o", "r"], 2,
         "digits: --y names the column of labels of table:FILE"),
        (["run", *given(patients), "-o", patients / "other"], 3, "use --dtype float32"),
        (["run", *given(patients), "--fraction-bits", 6, "-o", patients / "six"], 0, ""),
    ):  # fmt: skip
        found = cli(*words)
        assert found.exit_code == code, (words, found.stderr)
        assert said in found.stderr


def frame_of(rows):
    """Rows by id, with the names of their columns and their classes."""
    ids = [one.decode() for one in rows.row_ids]
    frame = pd.DataFrame(rows.to_numpy(), ids, rows.header["space"]["columns"])
    return frame.assign(label=np.array(rows.classes)[rows.labels])


def test_the_store_is_listed_and_pruned(patients, cli):
    """A run keeps what it has linked, whatever is removed of the store."""
    run = patients / "run"
    assert cli("run", *given(patients), *RUN, "-o", run).exit_code == 0
    with afltool.open_features(run / "01-features-test.h5") as rows:
        frame = frame_of(rows)
    table = pd.read_csv(patients / "test.csv")
    assert list(frame.columns) == ["age", "sodium", "label"]
    np.testing.assert_allclose(frame["sodium"], table["sodium"], rtol=1e-6)
    assert list(frame["label"]) == list(table["diagnosis"])
    found = json.loads(cli("store", "--json").stdout)
    assert found["folder"] == str(patients / "store")
    assert [Path(one["path"]).parent.name for one in found["files"]] == ["tables"] * 2
    assert found["bytes"] == sum(one["bytes"] for one in found["files"])
    old = patients / "store" / found["files"][0]["path"]
    os.utime(old, (time.time() - 10 * 86400,) * 2)
    assert "removed: 1 files" in cli("store", "--prune", 9).stderr
    assert not old.exists()
    assert (patients / "store" / found["files"][1]["path"]).exists()
    assert cli("evaluate", run / "head-final.h5", run / "01-features-test.h5").exit_code == 0
    assert cli("store", patients / "none").exit_code == 3
    assert cli("store", "--prune", -1).exit_code == 2


def test_where_the_store_lies(tmp_path, monkeypatch, cli):
    """$AFLTOOL_STORE, else an ./afl-store that is there, else the user's cache folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AFLTOOL_STORE")

    def place():
        return json.loads(cli("store", "--json").stdout)["folder"]

    assert place() == str(tmp_path / "cache" / "afltool")
    (tmp_path / "afl-store").mkdir()
    assert place() == "afl-store"
    monkeypatch.setenv("AFLTOOL_STORE", "/elsewhere")
    assert place() == "/elsewhere"


def test_columns_are_taken_by_name_and_texts_become_ones(patients, cli):
    """A category is a feature for each listed value; a head's table is read the same way."""
    rows = pd.read_csv(patients / "train.csv").assign(sex=["f", "m"] * ((N - TEST) // 2))
    rows.insert(0, "patient_id", [f"p{i}" for i in range(len(rows))])
    rows.to_csv(patients / "train.csv", index=False)
    words = ["--y", "diagnosis", "--dtype", "float32", "--feature-columns", "age"]
    words += ["--categories", "sex=m,f"]
    done = cli("import", patients / "train.csv", *words, "-o", patients / "c.h5")
    assert done.exit_code == 0, done.stderr
    assert "3 features; left out: sodium; row ids: patient_id" in done.stderr
    with afltool.open_features(patients / "c.h5") as features:
        frame = frame_of(features)
    assert list(frame.columns) == ["age", "sex = f", "sex = m", "label"]
    assert list(frame.index[:2]) == ["p0", "p1"]
    assert list(frame["sex = m"][:4]) == [0, 1, 0, 1]
    total = afltool.local_stats(patients / "c.h5", "linear", patients / "t.h5", client="a",
                                sum=True, head_options={"ridge": 1.0})  # fmt: skip
    head = afltool.solve(total, patients / "h.h5")
    found = afltool.evaluate(head, patients / "train.csv", y="diagnosis")
    assert found["top1"] == afltool.evaluate(head, patients / "c.h5")["top1"]
    for column in ("embedding", "vector"):
        lists = patients / f"{column}.parquet"
        pd.DataFrame({column: [[0.5, 2]] * 2, "sex": ["f", "m"], "y": [0, 1]}).to_parquet(lists)
        assert afltool.info(afltool.import_embeddings(lists, f"{lists}.h5"))["dim"] == 2
    np.savez(patients / "a.npz", x=np.eye(2), y=[0, 1])
    table = [patients / "train.csv", "--y", "diagnosis"]
    for more, code, said in (
        ([*table, "--categories", "sex=m"], 3, "row 0 has 'f' in sex"),
        ([*table, "--categories", "six=m"], 3, "--categories six is not a column"),
        ([*table, "--feature-columns", "diagnosis"], 3, "--feature-columns diagnosis is text"),
        ([*table, "--features", "age"], 2, "renamed: --feature-columns"),
        ([*table, "--x", "age", "--categories", "sex"], 2, "--x is not used with --categories"),
        ([lists, "--categories", "sex"], 2, "vector has lists"),
        ([patients / "a.npz", "--categories", "sex"], 2, "has no such names"),
    ):
        bad = cli("import", *more, "-o", "x.h5")
        assert bad.exit_code == code, bad.stderr
        assert said in bad.stderr


def test_sites_agree_by_the_file_of_one(tmp_path, cli, monkeypatch):
    """Columns in their order, the values of a category, number format and classes."""
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame({"age": [30.5, 41.0, 65.5], "sex": ["f", "m", "f"], "y": ["a", "b", "c"]})
    rows.to_csv("one.csv", index=False)
    rows[:2].assign(sex="m", extra=[1.0, 2.0])[["extra", "y", "sex", "age"]].to_csv(
        "other.csv", index=False
    )
    words = ["--categories", "sex", "--dtype", "float32", "--backbone", "records"]
    assert cli("import", "one.csv", *words, "-o", "one.h5").exit_code == 0
    assert cli("import", "other.csv", "--like", "one.h5", "-o", "other.h5").exit_code == 0
    one, other = (afltool.info(f"{name}.h5") for name in ("one", "other"))
    assert (one["space"], one["classes"]) == (other["space"], other["classes"])
    with afltool.open_features("other.h5") as made:
        assert np.array_equal(made.to_numpy(), [[30.5, 0, 1], [41.0, 0, 1]])
    done = cli("import", "other.csv", "--like", "one.h5", "--fraction-bits", 4, "-o", "int.h5")
    assert done.exit_code == 0, done.stderr
    assert afltool.info("int.h5")["space"]["fraction_bits"] == 4
    sums = afltool.scale("one.h5", "sums", client="one")
    scaling = afltool.solve(afltool.aggregate([sums], "sums.h5"), "scaling.h5")
    scaled = afltool.import_embeddings("one.h5", "scaled.h5", backbone="records", scale=scaling)
    refused = cli("import", "other.csv", "--like", scaled, "-o", "no.h5")
    assert (refused.exit_code, "scaled.h5 is scaled" in refused.stderr) == (2, True)


def test_every_command_knows_the_columns_of_a_table(tmp_path, cli, monkeypatch):
    """Sex, wards with a comma in a name, yes and no: the same features and sums by every road."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFLTOOL_STORE", "store")
    rng = np.random.default_rng(1)
    sex, ward = rng.choice(["f", "m"], N), rng.choice(["A, east", "B"], N)
    ill = np.where((sex == "f") ^ (rng.random(N) < 0.1), "ill", "healthy")
    named = {"case": [f"c{i}" for i in range(N)], "age": rng.normal(size=N), "sex": sex}
    rows = pd.DataFrame({**named, "ward": ward, "note": "seen", "diagnosis": ill})
    rows[TEST:].to_csv("train.csv", index=False)
    rows[:TEST].to_csv("test.csv", index=False)
    words = ["--y", "diagnosis", "--row-ids", "case"]
    plain = cli("import", "train.csv", *words, "-o", "plain.h5")
    assert "1 features; left out: sex (text), ward (text), note (text)" in plain.stderr
    assert "--categories sex,ward,note makes features of 0 and 1" in plain.stderr
    words += ["--categories", "sex,ward"]
    done = cli("import", "train.csv", *words, "-o", "train.h5")
    assert "--categories 'ward=\"A, east\",B'" in done.stderr
    with afltool.open_features("train.h5") as made:
        frame = frame_of(made)
    assert list(frame["ward = A, east"]) == list((ward[TEST:] == "A, east").astype(float))
    total = afltool.info(afltool.local_stats("train.h5", "linear", "t", client="a"))["digest"]
    local = ["--client", "a", "--head", "linear", "--sum", "-o", "s.h5"]
    assert cli("local-stats", "train.csv", *words, *local).exit_code == 0
    assert afltool.info("s.h5")["digest"] == total
    given = ["--train-features", "train.csv", "--test-features", "test.csv", *words, "--clients", 2]
    assert cli("run", *given, "--ridge", 1, "-o", "run").exit_code == 0
    assert afltool.info("run/01-features-train.h5")["digest"] == afltool.info("train.h5")["digest"]
    assert cli("slurm", *given, "-o", "jobs", "--dry-run").exit_code == 0
    head, right = "run/head-final.h5", json.loads(Path("run/06-metrics.json").read_text())["top1"]
    assert right > 0.8
    assert (
        afltool.evaluate(head, "test.csv", y="diagnosis", categories=("sex", "ward"))["top1"]
        == right
    )
    rows[:TEST].query("ward == 'B'").to_csv("b.csv", index=False)  # the head knows the other ward
    assert afltool.evaluate(head, "b.csv", y="diagnosis", categories=("sex,ward",))["n"] < TEST
    rows[:TEST].query("diagnosis == 'ill'").to_csv("ill.csv", index=False)  # or another class
    assert afltool.evaluate(head, "ill.csv", y="diagnosis", categories=("sex,ward",))["n"] < TEST
    rows[:TEST].drop(columns="diagnosis").to_csv("new.csv", index=False)
    said = cli("predict", head, "new.csv", "--row-ids", "case").stdout
    predicted = {next(iter(r.values())): r["predicted"] for r in csv.DictReader(io.StringIO(said))}
    truth = dict(zip(rows["case"], rows["diagnosis"], strict=True))
    assert np.mean([truth[case] == name for case, name in predicted.items()]) == right
    for command, code, text in (
        (["evaluate", head, "test.csv", *words[:2], "--categories", "ward"], 4, "'sex = f'"),
        (["predict", head, "run/01-features-test.h5", "--categories", "sex"], 2, "used only with"),
        (["run", "--data", "digits", "--backbone", "resnet18", "--categories", "sex", "-o", "r"], 2,
         "--categories is for tables"),
        (["import", "test.csv", *words[:2], "--feature-columns", "sex", "--categories", "sex",
          "-o", "only.h5"], 0, "2 features"),
    ):  # fmt: skip
        found = cli(*command)
        assert found.exit_code == code, found.stderr
        assert text in found.stderr


@pytest.mark.parametrize("head", ["nowhere.h5", "linaer"])
def test_a_wrong_head_is_said_before_a_table_is_read(patients, cli, monkeypatch, head):
    """Not what would be wrong with the table, which nobody could use."""
    monkeypatch.chdir(patients)
    for words in (
        ["evaluate", head, "test.csv"],
        ["evaluate", head, "test.csv", "--counts", "--client", "a", "-o", "c"],
        ["predict", head, "new.csv", "-o", "p.csv"],
        ["local-stats", "train.csv", "--client", "a", "--head", head, "-o", "s"],
    ):
        done = cli(*words)
        assert done.exit_code in (2, 3), words
        assert head in done.stderr, words
        assert not (patients / "store").exists(), words
