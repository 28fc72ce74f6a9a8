"""What rounding takes from features: measured, said, and refused where a feature dies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import afltool
from afltool.errors import InvalidDataError
from afltool.math.rounding import Rounding


def rounded(X, bits=9):
    return np.rint(X * 2.0**bits) / 2.0**bits


@pytest.fixture
def X():
    """Plain, binary, constant, tiny, far from 0, tiny but for one row, constant but for noise."""
    rng, n = np.random.default_rng(2), 1000
    tiny = rng.normal(size=n) * 1e-4
    noise = np.where(np.arange(n) % 2, 0.1 + 0.2, 0.3)
    return np.column_stack([
        rng.normal(size=n), np.arange(n) % 2, np.full(n, 0.123), tiny, 3 + tiny,
        np.where(np.arange(n) == 777, 50.0, tiny), noise,
    ])  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_it_is_what_numpy_says_of_all_rows_in_any_blocks(X, step):
    found = Rounding(X.shape[1])
    for start in reversed(range(0, len(X), step)):
        found.add(X[start : start + step], rounded(X[start : start + step]))
    left = [len(np.unique(column)) for column in rounded(X).T]
    assert found.varies.tolist() == [True, True, False, True, True, True, False]
    assert found.lost.tolist() == [False, False, False, True, True, False, False]
    assert found.thin.tolist() == found.lost.tolist()
    assert left == [left[0], 2, 1, 1, 1, 2, 1]
    share = np.abs(X - rounded(X))[:, 3:5].max(axis=0) / np.ptp(X[:, 3:5], axis=0)
    worst = f"feature {3 + share.argmax()} (errors up to {100 * share.max():.3g} % of its range"
    assert f"{worst}; 2 of 7 features keep fewer than 8 steps of theirs)" in found.describe()
    few = Rounding(2)  # 7 steps and 9
    few.add(np.array([[0.0, 0.0], [6.6, 9.0], [3.5, 0.5]]), np.array([[0, 0], [7, 9], [4, 1]]))
    assert few.thin.tolist() == [True, False]


def import_(cli, tmp_path, X, *more, y=None):
    np.savez(tmp_path / "x.npz", x=X, y=np.arange(len(X)) % 2 if y is None else y)
    return cli("import", tmp_path / "x.npz", "-o", tmp_path / "x.h5", "--overwrite", *more)


def said(done):
    return " ".join(done.stderr.split())


def test_a_feature_that_dies_is_refused_with_what_helps(X, tmp_path, cli):
    done = import_(cli, tmp_path, X)
    assert done.exit_code == 3
    for word in ("2 of 7 features constant", "such as feature", "--dtype float32", "afltool scale",
                 "--allow-constant"):  # fmt: skip
        assert word in said(done)
    assert not (tmp_path / "x.h5").exists()
    for more in (["--allow-constant"], ["--unlabeled"]):
        kept = import_(cli, tmp_path, X, *more)
        assert kept.exit_code == 0, kept.stderr
        assert "2 of 7 features keep fewer than 8 steps" in said(kept)
    assert import_(cli, tmp_path, X, "--dtype", "float32", "--threads", 2).exit_code == 0
    again = cli("convert", tmp_path / "x.h5", "-o", tmp_path / "y.h5")
    assert again.exit_code == 3
    assert "2 of 7 features constant" in said(again)
    words = ["convert", tmp_path / "x.h5", "-o", tmp_path / "y.h5", "--allow-constant"]
    assert cli(*words).exit_code == 0


def test_features_that_do_not_vary_lose_nothing(tmp_path, cli):
    X = np.column_stack([np.zeros(90), np.full(90, 1e-5), np.arange(90) % 3, np.full(90, 7.77)])
    done = import_(cli, tmp_path, X)
    assert done.exit_code == 0, done.stderr
    assert "fewer than" not in done.stderr
    assert import_(cli, tmp_path, X[:1] + 1e-5).exit_code == 3  # one class, and nothing else
    assert import_(cli, tmp_path, X[:1] + 1e-5, "--unlabeled").exit_code == 0


def test_float32_may_take_everything_too(tmp_path, cli):
    """Seconds since 1970 within a minute are one float32."""
    X = np.column_stack([1.7e9 + np.arange(60) % 50, np.arange(60) % 7])
    done = import_(cli, tmp_path, X, "--dtype", "float32")
    assert done.exit_code == 3
    assert "1 of 2 features constant" in said(done)
    sums = afltool.scale(tmp_path / "x.npz", tmp_path / "s", unit_bits=8)
    by = afltool.solve(afltool.aggregate([sums], tmp_path / "t.h5"), tmp_path / "scaling.h5")
    scaled = import_(cli, tmp_path, X, "--dtype", "float32", "--scale", by)
    assert scaled.exit_code == 0, scaled.stderr


def test_columns_are_named(tmp_path, cli):
    pytest.importorskip("pyarrow")
    n = np.arange(40)
    frame = pd.DataFrame({"weight": n % 9, "dose": n * 1e-6, "age": n % 5, "y": n % 2})
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    done = cli("import", tmp_path / "t.parquet", "-o", tmp_path / "t.h5")
    assert done.exit_code == 3
    assert "such as the column 'dose'" in said(done)
    units = cli("scale", tmp_path / "t.parquet", "--unit-bits", 8, "-o", tmp_path / "s")
    assert units.exit_code == 3
    assert "the column 'dose'" in said(units)
    assert "more --unit-bits" in said(units)
    frame.assign(weight=n + 100.0).to_parquet(tmp_path / "u.parquet", index=False)
    beyond = cli("import", tmp_path / "u.parquet", "-o", tmp_path / "u.h5")
    assert "column 'weight', row 39, feature 2 is 139" in said(beyond)


def test_the_estimator_refuses_bits_that_make_a_column_constant(X):
    pytest.importorskip("sklearn")
    y = np.arange(len(X)) % 2
    with pytest.raises(InvalidDataError, match="2 of 7 features constant"):
        afltool.AnalyticClassifier(fraction_bits=9).fit(X, y)
    afltool.AnalyticClassifier(ridge=1.0).fit(X, y)
    afltool.AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(X[:, :3], y)
