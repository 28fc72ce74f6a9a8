"""info says what a file holds, diff what two differ in; clients have any text for a name."""

from __future__ import annotations

import csv
import getpass
import json
import platform

import numpy as np
import pandas as pd
import pytest

import afltool
from afltool.errors import CorruptFileError, InvalidDataError
from afltool.files import differences
from afltool.files.features import open_features
from afltool.files.hdf5 import read_header
from afltool.files.partitions import load_partition
from afltool.values.names import file_of_name


@pytest.fixture(scope="module")
def silo(tmp_path_factory):
    """5 rows of 8 features: one class has a single row, one has none."""
    folder = tmp_path_factory.mktemp("silo")
    x = np.random.default_rng(0).integers(-40, 40, size=(5, 8)) / 8.0
    np.savez(folder / "x.npz", x=x, y=np.array([0, 0, 1, 3, 3]))
    return afltool.import_embeddings(folder / "x.npz", folder / "x.h5"), x


def test_few_rows_are_kept_back_when_asked(silo, tmp_path):
    path, _ = silo
    with pytest.raises(
        InvalidDataError, match=r"1 of 1 clients have fewer than 6 rows.*'A' with 5"
    ):
        afltool.local_stats(path, "linear", tmp_path / "s.h5", client="A", sum=True, min_rows=6)
    assert not (tmp_path / "s.h5").exists()
    afltool.local_stats(path, "linear", tmp_path / "s.h5", client="A", sum=True, min_rows=5)


def test_info_of_every_kind_is_json(silo, tmp_path):
    path, _ = silo
    clients = afltool.partition(path, tmp_path / "c.h5", scheme="iid", clients=2)
    stats = afltool.local_stats(path, "linear", tmp_path / "s.h5", partition=clients, sum=True)
    head = afltool.solve(stats, tmp_path / "h.h5", head_options={"ridge": "auto"})
    for file in (path, clients, stats, head):
        found = json.loads(json.dumps(afltool.info(file), allow_nan=False))
        assert len(found["digest"]) == 64
        assert found["bytes"] == file.stat().st_size
        assert found["checked"].startswith("header only; afltool verify" if file is path else "all")
    assert afltool.info(head)["phase"] is None
    assert afltool.info(stats)["gammas"] == {"0": 2}


def test_info_counts_what_the_rows_of_a_partition_are(road, tmp_path):
    """Against its rows as a table, with clients without rows and labels that were changed."""
    how = {"clients": 40, "alpha": 0.05, "label_noise": 0.25, "export": tmp_path / "rows.csv"}
    found = afltool.info(afltool.partition(road.train, tmp_path / "c.h5", **how))
    table, p = pd.read_csv(tmp_path / "rows.csv"), load_partition(tmp_path / "c.h5")
    rows = table["client"].value_counts().reindex(range(40), fill_value=0)
    kinds = pd.Series(p.effective_labels).groupby(p.client).nunique().reindex(range(40))
    assert (found["rows"], found["clients"]) == (600, 40)
    assert found["rows_per_client"] == rows.tolist()
    assert found["classes_per_client"] == kinds.fillna(0).tolist()
    assert found["empty_clients"] == (rows == 0).sum() > 0
    assert found["relabelled_rows"] == (p.labels != p.effective_labels).sum() > 0


def test_verify_stops_at_the_first_damaged_file(road, tmp_path, cli):
    broken = tmp_path / "broken.h5"
    broken.write_bytes(road.total.read_bytes()[:-7])
    done = cli("verify", road.total, broken, tmp_path / "none.h5", road.head)
    assert (done.exit_code, done.stdout) == (3, "")
    assert str(broken) in done.stderr
    found = json.loads(cli("verify", road.total, road.head, "--json").stdout)
    assert [one["intact"] for one in found] == [True, True]


def test_statistics_say_nothing_of_the_site(road, tmp_path):
    """No absolute path, host name, user or time in any byte of what a client sends."""
    one = sorted(road.stats.iterdir())[0]
    head1 = tmp_path / "deep" / "head0.h5"
    afltool.head("linear", head1)
    sent = afltool.local_stats(road.train, head1, tmp_path / "silo.h5", client="a", sum=True)
    for path in (one, sent):
        provenance = read_header(path, "statistics")["provenance"]
        assert not {"time", "host", "user"} & provenance.keys()
        text = json.dumps(read_header(path))
        for secret in (str(road.folder), str(tmp_path), platform.node(), getpass.getuser()):
            assert secret not in text
    assert read_header(sent)["provenance"]["seconds"] is None


# ---------------------------------------------------------------- at first sight


def test_info_is_short_and_the_digest_is_on_one_line(road, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for kind, path in road.of_each_kind().items():
        lines = cli("info", path).stdout.splitlines()
        by_name = {line.split(" ")[0]: line for line in lines if not line.startswith(" ")}
        assert len(lines) <= 10, kind
        digest = afltool.info(path)["digest"]
        assert digest in by_name["digest"].split()
        assert kind in by_name["kind"]
        assert {"rows", "classes"} <= by_name.keys(), kind
        assert not any("provenance" in line for line in lines)
        assert "header only" in by_name.get("checked", "header only")
        with monkeypatch.context() as narrow:
            narrow.setenv("COLUMNS", "40")
            assert digest in cli("info", path).stdout


# ---------------------------------------------------------------- in what two files differ


def what(*paths):
    return {one["what"]: one for one in afltool.diff(*paths)["differences"]}


def test_no_file_differs_from_itself(road):
    for path in road.of_each_kind().values():
        assert what(path, path) == {}


def test_arrays_that_differ_are_named_with_the_largest_difference(tmp_path, cli):
    rows = np.arange(6000.0).reshape(3000, 2)
    changed = rows.copy()
    changed[2700, 1] += 3
    paths = []
    for name, x in (("a", rows), ("b", changed), ("c", rows[:, :1])):
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(len(x)) % 3)
        made = tmp_path / f"{name}.h5"
        paths.append(afltool.import_embeddings(tmp_path / f"{name}.npz", made, dtype="float32"))
    found = what(*paths[:2])["features"]
    assert (found["entries"], found["differ"]) == (6000, 1)
    assert found["largest"] == 3.0
    assert "features: entries 6000; differ 1" in cli("diff", *paths[:2]).stdout
    assert what(paths[0], paths[2])["features"]["second"] == "[3000, 1] float32"


def test_integers_are_subtracted_exactly_and_nan_differs_from_numbers_alone():
    big, other = np.array([2**62 + 1, -(2**62)]), np.array([2**62, 2**62])
    [found] = differences._compare_arrays("a", big, other)
    assert (found["differ"], found["largest"]) == (2, 2**63)
    a, b = np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 2.0, 1.5])
    [found] = differences._compare_arrays("a", a, b)
    assert (found["differ"], found["largest"]) == (2, None)


def test_options_classes_and_clients_that_differ_are_named(road, silo, tmp_path, cli):
    two = afltool.solve(road.total, tmp_path / "two.h5", head_options={"ridge": 2.0})
    assert what(road.head, two)["recipe.options.ridge"]["second"] == 2.0
    parts = [tmp_path / f"{name}.h5" for name in "ab"]
    for name, path in zip("ab", parts, strict=True):
        afltool.local_stats(silo[0], "linear", path, client=name, sum=True)
    found = what(*parts)
    assert (found["clients"]["first"], found["clients"]["second"]) == (["a"], ["b"])
    assert "gram" not in " ".join(found), "equal rows"
    both = afltool.aggregate(parts, tmp_path / "both.h5", allow_repeats=True)
    other = afltool.local_stats(road.train, "linear", tmp_path / "other.h5", client="a", sum=True)
    assert "clients: first empty; second b\n" in cli("diff", parts[0], both).stdout
    said = cli("diff", parts[0], other).stdout
    assert f"clients.a.rows: first {len(silo[1])}; second 600\n" in said
    assert not {*"{}[]'"} & {*said}, "words, not Python"
    done = cli("diff", road.head, road.total)
    assert done.exit_code == 4
    assert "a head file" in done.stderr
    assert "a statistics file" in done.stderr


# ---------------------------------------------------------------- names of clients


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
    else:
        frame.to_parquet(path, index=False)
    return path


def test_a_name_is_a_client_and_a_file(train, tmp_path):
    """Through a table, a partition and files to their sum; and through an export and back."""
    ids, file = row_ids(train), {"scheme": "file"}
    whole = afltool.local_stats(train, "linear", tmp_path / "w.h5", client="all", sum=True)
    for number, names in enumerate((ODD, ["01", "1"], WILD)):
        at = tmp_path / str(number)
        at.mkdir()
        csv_table, parquet = (table(at / f"t{end}", train, names) for end in (".csv", ".parquet"))
        dealt = afltool.partition(train, at / "c.h5", table=csv_table, export=at / "e.csv", **file)
        p = load_partition(dealt)
        owner = {row.decode(): p.names[k] for row, k in zip(p.row_ids, p.client, strict=True)}
        assert [owner[i] for i in ids] == [names[k % len(names)] for k in range(ROWS)]
        for k, again in enumerate((parquet, at / "e.csv")):
            other = afltool.partition(train, at / f"{k}.h5", table=again, **file)
            assert afltool.info(other)["digest"] == p.digest()
        stats = afltool.local_stats(train, "linear", at / "s", partition=dealt)
        total = afltool.info(afltool.aggregate([stats], at / "t.h5"))
        assert sorted(total["client_names"]) == sorted(p.names) == sorted(set(names))
        assert len(list(stats.iterdir())) == len(p.names)
        assert total["digest"] == afltool.info(whole)["digest"]


def test_files_of_clients(road, train, tmp_path, cli):
    """Simulated ones are padded, a silo's is printed, and names that no file can hold refused."""
    assert [p.name for p in sorted(road.stats.iterdir())] == [f"client-{k}.h5" for k in range(6)]
    assert file_of_name("7") == "client-7.h5"
    assert len({file_of_name(name) for name in WILD}) == len(WILD)
    assert all(len(file_of_name(name).encode()) < 240 for name in WILD)
    one, out = ["local-stats", train, "--head", "linear", "-o", tmp_path / "s"], tmp_path / "s"
    for name in ("", "\ud800"):
        assert cli(*one, "--client", name).exit_code in (2, 3)
        assert not out.exists()
    assert cli(*one, "--client", "a/b").stdout == f"{out / 'client-a%2Fb.h5'}\n"
    refused = cli(*one, "--client", "a", "--only", "0/2")
    assert refused.exit_code == 2
    assert "--only is not used with --client" in refused.stderr


#: Name, content and error of a table that is refused.
REFUSED = [
    ("a.csv", "row,client,client\n", InvalidDataError, "2 columns named 'client'"),
    ("b.csv", "row,client\nNA,a\n,b\n", InvalidDataError, r"row 2 has no row id \(1 of 2"),
    ("c.csv", "row,client\nNA,a,b\n", CorruptFileError, "line 2: expected 2 cells, found 3"),
    ("d.csv", "client\na\n", InvalidDataError, "in a column row or path"),
]


def test_tables_that_are_refused(train, tmp_path):
    for name, data, error, message in REFUSED:
        (tmp_path / name).write_text(data)
        with pytest.raises(error, match=message):
            afltool.partition(train, tmp_path / "c.h5", scheme="file", table=tmp_path / name)


def test_names_that_differ_by_capitals_alone(train, tmp_path, cli, monkeypatch):
    """They have a file each where the disk tells them apart, and else are refused."""
    where = table(tmp_path / "t.csv", train, ["North", "north"])
    dealt = afltool.partition(train, tmp_path / "c.h5", scheme="file", table=where)
    out = tmp_path / "stats"
    line = ["local-stats", train, "--partition", dealt, "--head", "linear", "-o"]
    with monkeypatch.context() as patch:
        patch.setattr("afltool.stages.local_stats.FOLDS", True)
        done = cli(*line, out)
        assert done.exit_code == 3
        assert "'North' and 'north' would have one file" in " ".join(done.stderr.split())
        assert not out.exists()
        assert cli(*line, tmp_path / "sum.h5", "--sum").exit_code == 0
    assert cli(*line, out).exit_code == 0
    assert {path.name for path in out.iterdir()} == {"client-North.h5", "client-north.h5"}
