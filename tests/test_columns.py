"""Names of columns belong to the feature space: one order at all sites, and misfits by name."""

from __future__ import annotations

import numpy as np
import pytest

import afltool
from afltool.files.features import open_features
from afltool.files.hdf5 import read_header

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    y = np.arange(150) % 3
    return pd.DataFrame(
        rng.normal(size=(150, 4)) + np.outer(y, [1, 0, 2, -1]), columns=NAMES
    ).assign(y=y)


@pytest.fixture
def site(tmp_path):
    """``site(name, frame)`` is the feature file of a table; with ``named=False`` of an array."""

    def made(name, table, named=True, **options):
        path = tmp_path / (f"{name}.parquet" if named else f"{name}.npz")
        if named:
            table.to_parquet(path, index=False)
        else:
            np.savez(path, x=table.drop(columns="y").to_numpy(), y=table["y"])
        return afltool.import_embeddings(path, tmp_path / f"{name}.h5", **options)

    return made


def refused(done, *fragments):
    assert (done.exit_code, "Traceback" in done.stderr) == (4, False), done.stderr
    message = " ".join(done.stderr.split())
    for fragment in fragments:
        assert fragment in message


def test_another_order_gives_equal_features(frame, site, cli):
    one, turned = site("one", frame), site("turned", frame[[*NAMES[::-1], "y"]])
    assert read_header(one)["space"] == read_header(turned)["space"]
    assert afltool.info(one)["digest"] == afltool.info(turned)["digest"]
    with open_features(one) as rows:
        found = rows.stored(0, len(rows))
    np.testing.assert_array_equal(found, np.rint(frame[sorted(NAMES)].to_numpy() * 512))
    said = cli("info", turned).stdout
    assert "columns 4: petal length, petal width, sepal length" in " ".join(said.split())


def test_numbers_in_names_count_by_their_value_and_accents_in_either_form(frame, site):
    names = ["f10", "f9", "f010", "e\u0301te\u0301"]
    table = frame.rename(columns=dict(zip(NAMES, names, strict=True)))
    composed = table.rename(columns={names[3]: "\xe9t\xe9"})[["\xe9t\xe9", *names[:3], "y"]]
    one, other = site("one", table), site("other", composed)
    assert read_header(one)["space"]["columns"] == ["f9", "f010", "f10", "\xe9t\xe9"]
    assert afltool.info(one)["digest"] == afltool.info(other)["digest"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda t: t.rename(columns={NAMES[0]: "age"}),
            ["'age' only in", "'sepal length' only in"],
        ),
        (lambda t: t.drop(columns=NAMES[3]), ["has 3 entries in", "'petal width' only in"]),
        (lambda t: t.assign(age=t.index % 7), ["has 5 entries in", "'age' only in"]),
    ],
    ids=["another", "missing", "more"],
)
def test_other_columns_are_refused_by_name_wherever_rows_come_in(
    frame, site, tmp_path, cli, change, said
):
    north, south = site("north", frame[:90]), site("south", change(frame[90:]))
    bound, sums = tmp_path / "bound.h5", tmp_path / "sums"
    for client, rows in (("north", north), ("south", south)):
        cli("local-stats", rows, "--client", client, "--head", "linear", "-o", sums)
        cli("scale", rows, "-o", tmp_path / "scales")
    north_sums, south_sums = sums / "client-north.h5", sums / "client-south.h5"
    assert cli("head", "linear", "--space", north, "-o", bound).exit_code == 0
    refused(cli("local-stats", south, "--client", "south", "--head", bound, "-o", sums), *said)
    refused(cli("aggregate", sums, "-o", tmp_path / "no.h5"), *said)
    refused(cli("aggregate", tmp_path / "scales", "-o", tmp_path / "no.h5"), *said)
    total = afltool.aggregate([north_sums], tmp_path / "total.h5")
    refused(cli("solve", total, "--validate", south_sums, "-o", tmp_path / "no.h5"), *said)
    head = afltool.solve(total, tmp_path / "head.h5")
    refused(cli("evaluate", head, south), *said)
    refused(cli("predict", head, south, "-o", tmp_path / "no.csv"), *said)
    afltool.convert(south, tmp_path / "real.h5", dtype="float32")
    afltool.split(south, tmp_path / "cut")
    for part in (tmp_path / "real.h5", *(tmp_path / "cut").glob("*.h5")):
        refused(cli("evaluate", head, part), *said)
    scales = afltool.aggregate([tmp_path / "scales" / "client-north.h5"], tmp_path / "scales.h5")
    by = afltool.solve(scales, tmp_path / "scaling.h5")
    again = ["import", tmp_path / "south.parquet", "--scale", by, "-o", tmp_path / "no.h5"]
    refused(cli(*again), *said)


def test_names_and_no_names_do_not_add_up(frame, site, tmp_path, cli):
    """Columns of an older import, or of an array, may stand in any order."""
    named, bare = site("named", frame[:90]), site("bare", frame[90:], named=False)
    assert "columns" not in read_header(bare)["space"]
    for client in (named, bare):
        cli(
            "local-stats", client, "--client", client.stem, "--head", "linear", "-o", tmp_path / "s"
        )
    refused(cli("aggregate", tmp_path / "s", "-o", tmp_path / "no.h5"), "columns is [",
            "None in")  # fmt: skip
    for one, other in ((named, bare), (bare, named)):
        total = afltool.aggregate([tmp_path / "s" / f"client-{one.stem}.h5"], tmp_path / "t.h5",
                                  overwrite=True)  # fmt: skip
        head = afltool.solve(total, tmp_path / "head.h5", overwrite=True)
        refused(cli("evaluate", head, other), "columns is")


def test_columns_that_are_called_alike_are_refused(frame, tmp_path, cli):
    import pyarrow as pa
    from pyarrow import parquet

    for two in (["a", "a"], ["\xe9", "e\u0301"]):
        columns = [pa.array(frame[name]) for name in (*NAMES[:2], "y")]
        table = pa.Table.from_arrays(columns, names=[*two, "y"])
        parquet.write_table(table, tmp_path / "two.parquet")
        done = cli("import", tmp_path / "two.parquet", "-o", tmp_path / "no.h5")
        assert done.exit_code == 3
        assert "two columns are called" in done.stderr


def test_indicators_of_missing_values_have_names(frame, site, tmp_path):
    holes = frame.copy()
    holes.loc[3, NAMES[2]] = np.nan
    holes.to_parquet(tmp_path / "holes.parquet", index=False)
    sums = afltool.scale(tmp_path / "holes.parquet", tmp_path / "s")
    by = afltool.solve(afltool.aggregate([sums], tmp_path / "t.h5"), tmp_path / "scaling.h5")
    path = site("holes", holes, scale=by, missing="indicator")
    assert read_header(path)["space"]["columns"] == [*sorted(NAMES), "petal length is missing"]
    with open_features(path) as rows:
        assert rows.dim == 5
        assert np.flatnonzero(rows.stored(0, 150)[:, 4]).tolist() == [3]


def test_estimators_of_frames_go_by_names_into_files_and_sums(frame, site, tmp_path, cli):
    pytest.importorskip("sklearn")
    X, y, turned = frame[NAMES], frame["y"], frame[NAMES[::-1]]
    one = afltool.AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(X, y)
    other = afltool.AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(turned, y)
    assert one.head_.digest() == other.head_.digest()
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(turned))
    saved, rows = other.save(tmp_path / "head.h5"), site("rows", frame)
    assert afltool.evaluate(saved, rows)["top1"] == one.score(X, y)
    loaded = afltool.AnalyticClassifier.load(saved)
    assert list(loaded.feature_names_in_) == NAMES[::-1]
    np.testing.assert_array_equal(loaded.predict(turned), one.predict(X))
    age = frame.rename(columns={NAMES[0]: "age"})
    refused(cli("evaluate", saved, site("age", age)), "'age' only in", "'sepal length' only in")
    with pytest.raises(ValueError, match="age"):
        loaded.predict(age[["age", *NAMES[1:]]])


def test_exported_heads_say_the_order_of_their_columns(frame, site, tmp_path):
    import onnx

    total = afltool.local_stats(
        site("rows", frame), "linear", tmp_path / "t.h5", client="a", sum=True
    )
    head = afltool.solve(total, tmp_path / "head.h5")
    model = afltool.export(head, tmp_path / "model.onnx", card=tmp_path / "card.md")
    assert ", ".join(sorted(NAMES)) in (tmp_path / "card.md").read_text()
    said = {one.key: one.value for one in onnx.load(model).metadata_props}
    assert all(name in said["afltool"] for name in NAMES), model
