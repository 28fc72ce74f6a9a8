"""Names of clients are texts, whatever the table; each has a file of its own."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from hidden import without

import afltool
from afltool.errors import CorruptFileError, InvalidDataError
from afltool.files.features import open_features
from afltool.files.partitions import load_partition
from afltool.values.names import file_of_name

ROWS = 240
ODD = ["0", "00", *map(str, range(1, 10)), "x"]
WILD = ["NA", "nan", "None", "1", "01", "1.0", "1e3", "True", " 1", "1 ", 'a"b', "a,b", "a\nb",
        "a\rb", "a\0", "Süd", "\x1b[31m", "a" * 300, "a" * 299 + "b", "../x", "."]  # fmt: skip


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Rows whose ids look like missing values and like numbers."""
    at = tmp_path_factory.mktemp("names")
    rng = np.random.default_rng(0)
    ids = np.array(["NA", "nan", "1", "01", *(f"r{i}" for i in range(ROWS - 4))])
    np.savez(at / "e.npz", x=rng.normal(size=(ROWS, 4)), y=rng.integers(0, 3, ROWS), row_ids=ids)
    return afltool.import_embeddings(at / "e.npz", at / "train.h5")


def row_ids(train):
    with open_features(train) as rows:
        return [i.decode() for i in rows.row_ids.tolist()]


def table(path, train, names):
    """Row ids and client names, in turn; written by other programs than ours."""
    ids = row_ids(train)
    frame = pd.DataFrame({"row": ids, "client": [names[i % len(names)] for i in range(len(ids))]})
    if path.suffix == ".csv":
        # pandas leaves a lone carriage return without quotes, which is another row.
        frame.to_csv(path, index=False, quoting=csv.QUOTE_ALL if names is WILD else 0)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_text(json.dumps(frame.to_dict("records")))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
@pytest.mark.parametrize("names", [ODD, ["01", "1"], ["1", "1", "1", "01", "x"], WILD])
def test_a_name_is_a_client_and_a_file(train, tmp_path, suffix, names):
    where = table(tmp_path / f"t{suffix}", train, names)
    dealt = afltool.partition(train, tmp_path / "c.h5", scheme="file", table=where)
    p = load_partition(dealt)
    assert set(p.names) == set(names)
    ids = row_ids(train)
    owner = {row.decode(): p.names[k] for row, k in zip(p.row_ids, p.client, strict=True)}
    assert [owner[i] for i in ids] == [names[k % len(names)] for k in range(ROWS)]
    stats = afltool.local_stats(train, "linear", tmp_path / "s", partition=dealt)
    assert len(list(stats.iterdir())) == len(set(names))
    total = afltool.info(afltool.aggregate([stats], tmp_path / "t.h5"))
    assert sorted(total["client_names"]) == sorted(set(names))
    whole = afltool.local_stats(train, "linear", tmp_path / "w.h5", client="all", sum=True)
    assert total["digest"] == afltool.info(whole)["digest"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_an_export_comes_back_with_the_same_names(train, tmp_path, suffix):
    names, again = table(tmp_path / "t.json", train, WILD), tmp_path / f"again{suffix}"
    how = {"scheme": "file", "table": names, "export": again}
    dealt = afltool.partition(train, tmp_path / "c.h5", **how)
    other = afltool.partition(train, tmp_path / "d.h5", scheme="file", table=again)
    assert afltool.info(other)["digest"] == afltool.info(dealt)["digest"]


def test_simulated_clients_keep_their_padded_files(road):
    assert [p.name for p in sorted(road.stats.iterdir())] == [f"client-{k}.h5" for k in range(6)]
    assert file_of_name("7") == "client-7.h5"
    assert len({file_of_name(name) for name in WILD}) == len(WILD)
    assert all(len(file_of_name(name).encode()) < 240 for name in WILD)


def test_a_silo_has_its_file_printed(train, tmp_path, cli):
    done = cli("local-stats", train, "--head", "linear", "--client", "a/b", "-o", tmp_path / "s")
    assert done.stdout.strip() == str(tmp_path / "s" / "client-a%2Fb.h5")


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_names_that_no_file_can_hold(train, tmp_path, name):
    with pytest.raises(afltool.errors.AflError):
        afltool.local_stats(train, "linear", tmp_path / "s", client=name)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("a.csv", "row,client,client\n", InvalidDataError, "2 columns named 'client'"),
        (
            "a.csv",
            "row,client\nNA,a\n,b\n",
            InvalidDataError,
            r"row 2 has no row id \(1 of 2",
        ),
        ("a.csv", "row,client\nNA,a,b\n", CorruptFileError, "line 2: expected 2 cells, found 3"),
        ("a.csv", "client\na\n", InvalidDataError, "in a column row or path"),
        ("a.json", '[{"row": "NA", "client": [1]}]', InvalidDataError, "expected a text or a"),
        ("a.json", '[{"row": "NA", "client": true}]', InvalidDataError, "a cell is true"),
        ("a.json", "[" * 100_000, CorruptFileError, "cannot be read as JSON"),
        ("a.json", '{"row": "NA"}', CorruptFileError, "expected a list of records"),
    ],
)
def test_tables_that_are_refused(train, tmp_path, name, data, error, message):
    (tmp_path / name).write_text(data)
    with pytest.raises(error, match=message):
        afltool.partition(train, tmp_path / "c.h5", scheme="file", table=tmp_path / name)


def test_numbers_of_json_keep_their_digits(train, tmp_path):
    ids = row_ids(train)
    text = ",".join(
        f'{{"row": {json.dumps(row)}, "client": {"1.50" if k % 2 else "9" * 5000}}}'
        for k, row in enumerate(ids)
    )
    (tmp_path / "t.json").write_text(f"[{text}]")
    path = afltool.partition(
        train, tmp_path / "c.h5", scheme="by-attribute", table=tmp_path / "t.json", column="client"
    )
    assert set(load_partition(path).names) == {"1.50", "9" * 5000}


def test_names_that_differ_by_capitals_alone_have_a_file_each_where_the_disk_tells_them_apart(
    train, tmp_path
):
    where = table(tmp_path / "t.csv", train, ["North", "north"])
    dealt = afltool.partition(train, tmp_path / "c.h5", scheme="file", table=where)
    head, out = afltool.head("linear", tmp_path / "h.h5"), tmp_path / "stats"
    line = ["local-stats", train, "--partition", dealt, "--head", head, "-o", out]
    folds = "import afltool.machine; afltool.machine.FOLDS = True"
    codes, done = without([], line, [*line[:-1], tmp_path / "sum.h5", "--sum"], prepare=folds)
    assert codes == [3, 0], done.stderr
    assert "'North' and 'north' would have one file" in done.stderr
    assert not out.exists()
    assert without([], line)[0] == [0]
    assert {path.name for path in out.iterdir()} == {"client-North.h5", "client-north.h5"}
