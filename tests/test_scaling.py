"""Features on one scale without pooling a row: sums, their laws, and scikit-learn on all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import afltool
from afltool import solve
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.hdf5 import read_file, write_file
from afltool.files.heads import load_head
from afltool.files.statistics import load_statistics, save_statistics
from afltool.heads import make_options
from afltool.heads.scaling import ScalingHead, ScalingOptions, squares
from afltool.math.gram import real
from afltool.stages.inspect import info

SPAN = np.array([0.01, 1.0, 300.0, 10_000.0])
UNIT = 2.0**-24


@pytest.fixture
def rows():
    """Features from 0.01 to 10,000, on the grid of the units; the last one never changes."""
    rng = np.random.default_rng(3)
    x = rng.gamma(2.0, 1.0, (240, 4)) * SPAN - SPAN
    x = np.column_stack([x, np.full(240, 7.5)])
    return np.rint(x / UNIT) * UNIT, rng.integers(0, 3, 240)


@pytest.fixture
def sites(tmp_path, rows):
    """The rows of three sites, uneven; returns what writes them and their total."""
    x, y = rows
    names, owner = ["a", "b", "c"], np.random.default_rng(4).choice(3, 240, p=[0.6, 0.3, 0.1])
    for k, name in enumerate(names):
        np.savez(tmp_path / f"{name}.npz", x=x[owner == k], y=y[owner == k])
    np.savez(tmp_path / "all.npz", x=x, y=y)
    for name in names:
        afltool.scale(tmp_path / f"{name}.npz", tmp_path / "sums")
    return afltool.aggregate([tmp_path / "sums"], tmp_path / "total.h5")


def scaled_by(total, rows, out, **options):
    """The rows of a file, imported as float32 on the scale of a total."""
    by = solve(total, out / "scaling.h5", overwrite=True)
    path = afltool.import_embeddings(
        rows, out / "rows.h5", scale=by, dtype="float32", overwrite=True, **options
    )
    with open_features(path) as found:
        return real(found.rows(0, len(found)))


def test_law_pooling_and_subtraction(tmp_path, sites):
    pooled = afltool.scale(tmp_path / "all.npz", tmp_path / "pooled", client="everybody")
    assert info(pooled)["digest"] == info(sites)["digest"]
    assert info(sites)["client_names"] == ["a", "b", "c"]
    files = [tmp_path / "sums" / f"client-{name}.h5" for name in "abc"]
    left = afltool.aggregate([sites], tmp_path / "left.h5", subtract=files[:2])
    assert info(left)["digest"] == info(files[2])["digest"]


def test_equal_to_scikit_learn_on_the_pooled_rows(tmp_path, sites, rows):
    """But for the rounding of values that are off the grid."""
    found, theirs = scaled_by(sites, tmp_path / "all.npz", tmp_path), StandardScaler()
    expected = theirs.fit_transform(rows[0])
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-7)  # of float32
    head = load_head(tmp_path / "scaling.h5").head
    np.testing.assert_allclose(head.centre, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(head.spread, theirs.scale_, rtol=1e-12)
    assert head.constant.tolist() == [0, 0, 0, 0, 1]
    x = np.random.default_rng(0).normal(size=(50, 3))
    np.savez(tmp_path / "x.npz", x=x)
    total = afltool.scale(tmp_path / "x.npz", tmp_path, unit_bits=10)
    head = load_head(solve(total, tmp_path / "s.h5")).head
    assert (np.abs(head.centre - x.mean(0)) <= 2.0**-11).all()
    assert not np.allclose(head.centre, x.mean(0), rtol=0, atol=1e-7)


def test_missing_values_are_left_out_of_sums_and_take_the_mean_of_all_sites(tmp_path, rows):
    x, y = rows[0].copy(), rows[1]
    x[::7, 1], x[3, 2] = np.nan, np.nan
    np.savez(tmp_path / "x.npz", x=x, y=y)
    total = afltool.scale(tmp_path / "x.npz", tmp_path / "sums")
    theirs = StandardScaler().fit(x)  # which leaves NaN out, too
    filled = theirs.transform(np.where(np.isnan(x), np.nanmean(x, axis=0), x))
    found = scaled_by(total, tmp_path / "x.npz", tmp_path, missing="mean")
    np.testing.assert_allclose(found, filled, rtol=3e-7, atol=3e-7)
    more = scaled_by(total, tmp_path / "x.npz", tmp_path, missing="indicator")
    np.testing.assert_array_equal(more, np.hstack([found, np.isnan(x)[:, [1, 2]]]))
    with pytest.raises(InvalidDataError, match=r"row 0, feature 1 is missing .* --missing mean"):
        scaled_by(total, tmp_path / "x.npz", tmp_path)


def test_a_feature_file_keeps_its_space_and_the_order_of_its_classes(tmp_path, rows):
    names = np.array(["zebra", "ape", "cat"])
    np.savez(tmp_path / "x.npz", x=rows[0], y=names[rows[1]])
    (tmp_path / "classes.txt").write_text("zebra\nape\ncat\n")
    real_file = afltool.import_embeddings(
        tmp_path / "x.npz", tmp_path / "real.h5", dtype="float32", backbone="ours",
        classes=tmp_path / "classes.txt",
    )  # fmt: skip
    total = afltool.scale(real_file, tmp_path / "sums")
    by = solve(total, tmp_path / "s.h5")
    made = info(afltool.import_embeddings(real_file, tmp_path / "scaled.h5", scale=by))
    assert made["classes"] == ["zebra", "ape", "cat"]
    assert made["space"]["backbone"] == "ours"
    assert made["space"]["scaling"] == info(by)["digest"]
    with pytest.raises(UsageError, match="those of a feature file keep theirs, ours"):
        afltool.import_embeddings(real_file, tmp_path / "no.h5", backbone="mine")
    spread = load_head(by).head.spread
    told = made["source"]["scaling"]
    np.testing.assert_allclose(told["resolution"], spread / 512)
    assert told["constant"] == [4]


def test_rows_that_are_scaled_otherwise_are_refused(tmp_path, sites):
    stats = []
    for name, total in (("a", tmp_path / "sums/client-a.h5"), ("all", sites)):
        by = solve(total, tmp_path / f"by-{name}.h5")
        made = afltool.import_embeddings(tmp_path / "a.npz", tmp_path / f"{name}-a.h5", scale=by)
        stats.append(afltool.local_stats(made, "linear", tmp_path / "stats", client=name))
    with pytest.raises(MismatchError, match="scaling"):
        afltool.aggregate(stats, tmp_path / "no.h5")
    with pytest.raises(MismatchError, match=r"other features: .*backbone"):
        afltool.import_embeddings(
            tmp_path / "a.npz", tmp_path / "other.h5", scale=by, backbone="others"
        )
    total = afltool.local_stats(made, "linear", tmp_path / "l.h5", client="a", sum=True)
    solved = afltool.solve(total, tmp_path / "linear.h5", head_options={"ridge": 1})
    with pytest.raises(UsageError, match="is a linear file; expected a scaling"):
        afltool.import_embeddings(tmp_path / "a.npz", tmp_path / "no.h5", scale=solved)


@settings(max_examples=40)
@given(st.lists(st.floats(-8e6, 8e6), min_size=1, max_size=60), st.integers(1, 59))
def test_moments_are_those_of_exact_arithmetic(values, cut):
    x = np.array(values)[:, None]
    head = ScalingHead(ScalingOptions()).bind(1, 1)
    y = np.zeros(len(x), dtype=np.int64)
    whole, _ = head.gather([(x, y)])
    parts, _ = head.gather([(x[:cut], y[:cut]), (x[cut:], y[cut:])])
    assert whole.digest() == parts.digest()
    q = [round(v * 2**24) for v in values]
    assert squares(dict(whole.arrays)) == [sum(v * v for v in q)]
    solved, _ = head.absorb(whole)
    assert solved.centre[0] == sum(q) / (len(q) << 24)


def test_bad_rows_are_refused(tmp_path):
    def made(x, **options):
        np.savez(tmp_path / "x.npz", x=np.array(x))
        return afltool.scale(tmp_path / "x.npz", tmp_path / "out", overwrite=True, **options)

    with pytest.raises(InvalidDataError, match=r"row 1, feature 0 is inf, beyond the range ±8.388"):
        made([[0.0], [np.inf]])
    with pytest.raises(InvalidDataError, match="fewer unit bits"):
        made([[1e7]])
    with pytest.raises(InvalidDataError, match="2 rows, fewer than --min-rows 3"):
        made([[1.0], [2.0]], min_rows=3)
    with pytest.raises(InvalidDataError, match="feature 1 has no value in any of the 2 rows"):
        solve(made([[1.0, np.nan], [2.0, np.nan]]), tmp_path / "s.h5")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("counts", "any 240 rows: an entry of 'counts'"),
        ("squares", "sum of squares allows"),
        ("minimum", "'minimum' is .*, expected absent"),
    ],
)  # fmt: skip
def test_sums_that_no_rows_can_have_are_refused(tmp_path, sites, name, wrong):
    s = load_statistics(sites)
    changed = {**s.arrays, name: s.arrays.get(name, s.arrays["counts"]) + 2**40}
    if name == "squares":
        changed[name][:] = 0
    path = save_statistics(
        tmp_path / "bad.h5",
        replace(s, arrays=changed, specs={}),
        {"stage": "x", "options": {}, "inputs": {}},
    )
    with pytest.raises(InvalidDataError, match=wrong):
        solve(path, tmp_path / "s.h5")
    assert not (tmp_path / "s.h5").exists()


def test_what_earlier_versions_made_by_other_methods(tmp_path, sites):
    """A solved scaling is its arrays; what is not solved yet is refused by its version."""
    solved = load_head(solve(sites, tmp_path / "s.h5"))
    header, arrays = read_file(tmp_path / "s.h5", "head")
    old = {**header, "options": {**header["options"], "method": "robust", "bins": 32}}
    write_file(tmp_path / "old.h5", "head", old, arrays)
    assert load_head(tmp_path / "old.h5").head.digest() == solved.head.digest()
    with pytest.raises(UsageError, match="'bins' no longer; found 32, which afltool 0"):
        make_options("scaling", {"bins": 32})
