"""The pairwise law on real client files gives the head that the sum gives."""

from __future__ import annotations

import numpy as np
import pytest

import afltool
from afltool.errors import NumericalError, UsageError
from afltool.files.heads import load_head


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """400 rows of 12 features and 3 classes over 40 clients: 10 rows each, fewer than features."""
    folder = tmp_path_factory.mktemp("dealt")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    x = rng.normal(size=(3, 12))[y] + rng.normal(size=(400, 12))
    np.savez(folder / "x.npz", x=x, y=y)
    train = afltool.import_embeddings(folder / "x.npz", folder / "x.h5")
    return train, afltool.partition(train, folder / "c.h5", scheme="iid", clients=40)


def stats(dealt, folder, **options):
    return afltool.local_stats(
        dealt[0],
        "linear",
        folder / "stats",
        partition=dealt[1],
        head_options={"ridge": 0, **options},
    )


def weights(total, folder, name, **options):
    head = afltool.solve(total, folder / f"{name}.h5", head_options=options)
    return load_head(head)[0].weights


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0, 100.0])
def test_both_laws_give_the_same_head_whatever_gamma(dealt, tmp_path, gamma):
    each = stats(dealt, tmp_path, gamma=gamma)
    by_sum = afltool.aggregate([each], tmp_path / "sum.h5")
    folded = afltool.aggregate([each], tmp_path / "pairwise.h5", law="pairwise")
    a, b = weights(by_sum, tmp_path, "a"), weights(folded, tmp_path, "b")
    assert np.abs(a - b).sum() < 1e-8
    assert afltool.info(folded)["gammas"] == {f"{gamma:g}": 40}
    assert afltool.info(folded)["class_counts"] == afltool.info(by_sum)["class_counts"]
    kept = weights(by_sum, tmp_path, "k", keep_gamma=True)
    expected = weights(by_sum, tmp_path, "r", ridge=40 * gamma)
    assert np.allclose(kept, expected, rtol=1e-12)
    assert np.abs(kept - a).max() > 1e-4  # 1e4 times what the law may cost


def test_singular_clients_without_gamma_are_refused_with_the_remedy(dealt, tmp_path):
    each = stats(dealt, tmp_path)
    with pytest.raises(NumericalError, match="--gamma > 0 in the head; or use --law sum"):
        afltool.aggregate([each], tmp_path / "t.h5", law="pairwise")
    assert not (tmp_path / "t.h5").exists()


def test_a_folded_total_is_not_added_to_exact_statistics(dealt, tmp_path):
    from afltool.errors import MismatchError

    each = stats(dealt, tmp_path, gamma=1.0)
    folded = afltool.aggregate(sorted(each.iterdir())[:3], tmp_path / "pairwise.h5", law="pairwise")
    with pytest.raises(MismatchError, match="another shape or type"):
        afltool.aggregate([folded, sorted(each.iterdir())[5]], tmp_path / "t.h5")


def test_only_the_sum_takes_clients_out(dealt, tmp_path):
    each = stats(dealt, tmp_path, gamma=1.0)
    with pytest.raises(UsageError, match="only with --law sum"):
        afltool.aggregate([each], tmp_path / "t.h5", subtract=[each], law="pairwise")
    with pytest.raises(UsageError, match="--law is sum or pairwise"):
        afltool.aggregate([each], tmp_path / "t.h5", law="mean")
