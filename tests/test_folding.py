"""The pairwise law on real client files gives the head that the sum gives."""

from __future__ import annotations

import numpy as np
import pytest

import afltool
from afltool.errors import MismatchError, NumericalError, UsageError
from afltool.files.heads import load_head
from afltool.files.partitions import load_partition
from afltool.files.statistics import load_statistics


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
    with pytest.raises(MismatchError, match="have other arrays than the others"):
        afltool.aggregate([folded, sorted(each.iterdir())[5]], tmp_path / "t.h5")


def test_only_the_sum_takes_clients_out(dealt, tmp_path):
    each = stats(dealt, tmp_path, gamma=1.0)
    with pytest.raises(UsageError, match="only with --law sum"):
        afltool.aggregate([each], tmp_path / "t.h5", subtract=[each], law="pairwise")
    with pytest.raises(UsageError, match="--law is sum or pairwise"):
        afltool.aggregate([each], tmp_path / "t.h5", law="mean")


def test_a_client_uploads_its_weights_as_the_paper_has_it(dealt, tmp_path):
    """(13) and (15) by NumPy alone; folded in two orders and solved: the head of the sums."""
    options = {"ridge": 0, "gamma": 2.0}
    how = {"partition": dealt[1], "head_options": options}
    files = afltool.local_stats(dealt[0], "linear", tmp_path / "up", law="pairwise", **how)
    sums = afltool.aggregate(
        [afltool.local_stats(dealt[0], "linear", tmp_path / "s", **how)], tmp_path / "sum.h5"
    )
    with afltool.open_features(dealt[0]) as rows:
        X, Y = rows.to_numpy(), np.eye(3)[rows.labels]
        client = load_partition(dealt[1]).client
    for k in (0, 17):
        sent = load_statistics(files / f"client-{k:02d}.h5").arrays
        C = X[client == k].T @ X[client == k] + 2.0 * np.eye(12)
        np.testing.assert_allclose(sent["regularized-gram"], C[np.tril_indices(12)], rtol=1e-13)
        W = np.linalg.inv(C) @ X[client == k].T @ Y[client == k]
        np.testing.assert_allclose(sent["local-weights"], W, rtol=1e-10, atol=1e-13)
    paths = sorted(files.glob("*.h5"))
    wanted = weights(sums, tmp_path, "wanted")
    for name, order in {"up": paths, "down": paths[::-1]}.items():
        total = afltool.aggregate(order, tmp_path / f"{name}.h5", law="pairwise")
        assert np.abs(weights(total, tmp_path, f"h-{name}") - wanted).sum() < 1e-8


def test_weights_of_clients_are_no_sums(dealt, tmp_path):
    """Neither added nor solved nor subtracted as if they were, and not of many clients at once."""
    how = {"partition": dealt[1], "head_options": {"ridge": 0, "gamma": 1.0}, "law": "pairwise"}
    files = afltool.local_stats(dealt[0], "linear", tmp_path / "up", **how)
    with pytest.raises(MismatchError, match="aggregate --law pairwise"):
        afltool.aggregate([files], tmp_path / "t.h5")
    with pytest.raises(MismatchError, match="phase 'pairwise'"):
        afltool.solve(files / "client-00.h5", tmp_path / "h.h5")
    with pytest.raises(UsageError, match="--law is not used with --sum"):
        afltool.local_stats(dealt[0], "linear", tmp_path / "t.h5", sum=True, **how)
    how["head_options"] = {}
    with pytest.raises(UsageError, match="phases with gram and cross"):
        afltool.local_stats(dealt[0], "safle", tmp_path / "s", **how)
    assert not (tmp_path / "t.h5").exists()
    assert not list((tmp_path / "s").glob("*.h5"))
