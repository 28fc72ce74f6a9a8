"""Evaluation as statistics: counts of scored rows, which add up as all statistics do."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics as skm
from conftest import counts_of_heads, embeddings
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, top_k_accuracy_score

import afltool
from afltool.errors import CorruptFileError, InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.files.statistics import load_statistics, save_statistics
from afltool.math.metrics import counting
from afltool.math.metrics import from_counts as fc
from afltool.math.metrics.figures import Scored, ece
from afltool.sources.images import open_dataset
from afltool.sources.images.torchvision_datasets import DEBIAN_FASHION_MNIST
from afltool.values.parsed import ONE, parse_bins
from afltool.values.statistics import Statistics

SCORES = parse_bins("-0.5:1.5:240")


@pytest.fixture(scope="module")
def at(road, tmp_path_factory):
    """A round of two heads over four clients, its sum, and the same rows counted at once."""
    folder = tmp_path_factory.mktemp("counts")
    afltool.solve(road.total, folder / "other.h5", head_options={"ridge": 3000.0})
    heads = [road.head, folder / "other.h5"]
    parts = afltool.partition(road.test, folder / "parts.h5", alpha=0.3, clients=4)
    stats = counts_of_heads(heads, road.test, folder / "stats", partition=parts)
    afltool.aggregate([stats], folder / "sum.h5")
    counts_of_heads(heads, road.test, folder / "one", client="one")
    return folder


def pooled(road, head=None):
    """Scores (n, C) and labels (n,) of the test rows, by the head's own arithmetic."""
    with open_features(road.test) as rows:
        return load_head(head or road.head).head.scores(rows.rows(0, len(rows))), rows.labels


# ------------------------------------------------------------ laws


def test_counts_add_up_to_those_of_the_pooled_rows_for_any_partition(road, at, tmp_path):
    wanted = afltool.info(at / "one" / "client-one.h5")["digest"]
    assert afltool.info(at / "sum.h5")["digest"] == wanted
    for scheme in ({"scheme": "iid"}, {"alpha": 0.05}):
        parts = afltool.partition(road.test, tmp_path / "p.h5", clients=7, overwrite=True, **scheme)
        out = tmp_path / f"{len(scheme)}.h5"
        counts_of_heads([road.head, at / "other.h5"], road.test, out, partition=parts, sum=True)
        assert afltool.info(out)["digest"] == wanted


def test_a_client_is_taken_out_exactly(at, tmp_path):
    files = sorted((at / "stats").iterdir())
    afltool.aggregate([at / "sum.h5"], tmp_path / "less.h5", subtract=[files[2]])
    afltool.aggregate([f for f in files if f != files[2]], tmp_path / "three.h5")
    found = [afltool.info(tmp_path / name)["digest"] for name in ("less.h5", "three.h5")]
    assert found[0] == found[1]


@settings(max_examples=25)
@given(st.data())
def test_counts_of_blocks_add_up_and_equal_scores_rank_by_class(data):
    """Whatever the scores, also many equal ones, on edges and beyond the outer ones."""
    classes = data.draw(st.integers(1, 6))
    n = data.draw(st.integers(0, 40))
    values = st.sampled_from(
        [-1e9, -3.0, -0.5, 0.0, 1 / 3, 0.5, 0.5 + 1e-13, 2 / 3, 1.0, 1.5, 9.0, 2.0**20, 1e30]
    )
    S = np.array(data.draw(st.lists(values, min_size=n * classes, max_size=n * classes)))
    S = S.reshape(n, classes)
    y = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n)), int)
    cut = data.draw(st.integers(0, n))
    whole, parts = ({k: np.zeros(s, int) for k, s in counting.shapes(classes, SCORES).items()}
                    for _ in range(2))  # fmt: skip
    predicted = counting.count(whole, S, S, y, SCORES)
    for rows in (slice(0, cut), slice(cut, n)):
        counting.count(parts, S[rows], S[rows], y[rows], SCORES)
    assert all(np.array_equal(whole[k], parts[k]) for k in whole)
    assert np.array_equal(predicted, S.argmax(axis=1))
    order = np.argsort(-S, axis=1, kind="stable")
    places = np.argmax(order == y[:, None], axis=1)
    assert np.array_equal(whole["ranks"], np.bincount(places, minlength=classes)[:10])
    inner = SCORES.edges[1:-1]
    for k in range(classes):
        for own in (0, 1):
            mine = S[(y == k) == own, k]
            at = np.searchsorted(inner, np.rint(mine * ONE) / ONE, side="left")
            assert np.array_equal(whole["scores"][k, own], np.bincount(at, minlength=240))


# ------------------------------------------------------------ figures


def test_what_is_counted_is_what_scikit_learn_counts(road, at):
    found = afltool.read_counts(at / "sum.h5")
    assert (found.rows, found.classes) == (200, ("0", "1", "2", "3"))
    right = []
    for head, counts in zip((road.head, at / "other.h5"), found.heads, strict=True):
        S, y = pooled(road, head)
        right.append(S.argmax(axis=1) == y)
        assert np.array_equal(counts.confusion, confusion_matrix(y, S.argmax(axis=1)))
        for k in (1, 2, 3):
            wanted = top_k_accuracy_score(y, S, k=k, labels=range(4), normalize=False)
            assert counts.ranks[:k].sum() == wanted
        assert counts.digest == afltool.info(head)["digest"]
    table = [[np.sum((right[0] == a) & (right[1] == b)) for b in (0, 1)] for a in (0, 1)]
    assert found.pairs.tolist() == [table]


def test_probabilities_are_counted_where_a_head_has_them(road, tmp_path):
    softmax = tmp_path / "softmax.h5"
    head = afltool.head("softmax", tmp_path / "0.h5", head_options={"rounds": 2})
    for number in range(3):
        total = afltool.local_stats(
            road.train, head, tmp_path / f"t{number}.h5", client="a", sum=True
        )
        after = softmax if number == 2 else tmp_path / f"{number + 1}.h5"
        head = afltool.solve(total, after, head=head)
    afltool.counts(softmax, road.test, tmp_path / "o", client="a")
    (found,) = afltool.read_counts(tmp_path / "o" / "client-a.h5").heads
    assert found.probabilities
    assert (found.edges[0], found.edges[-1]) == (0.0, 1.0)
    S, y = pooled(road, softmax)
    P = np.exp(S - S.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    at = np.minimum(np.ceil(P[y == 1, 1] * 240) - 1, 239).astype(int)
    assert np.array_equal(found.scores[1, 1], np.bincount(at, minlength=240))


# ------------------------------------------------------------ groups


@pytest.fixture(scope="module")
def sexes(road):
    with open_features(road.test) as rows:
        ids = [one.decode() for one in rows.row_ids]
    path = road.folder / "sexes.csv"
    lines = [f"{one},{'f' if i % 3 else 'm'},{'x' if i < 4 else 'y'}" for i, one in enumerate(ids)]
    path.write_text("\n".join(["row,sex,ward", *lines]) + "\n")
    return path


def test_groups_are_counted_apart(road, sexes, tmp_path, cli):
    words = ["evaluate", road.head, road.test, "--counts", "--by", f"{sexes}:sex"]
    assert cli(*words, "-o", tmp_path / "o").exit_code == 0
    found = afltool.read_counts(tmp_path / "o" / "client-test.h5")
    S, y = pooled(road)
    female = np.arange(200) % 3 > 0
    for number, mine in enumerate((female, ~female)):
        wanted = confusion_matrix(y[mine], S[mine].argmax(axis=1))
        assert np.array_equal(found.heads[0].groups[number], wanted)
    assert found.groups == ("f", "m")


def test_groups_that_are_too_small_or_unknown_are_refused(road, sexes, tmp_path):
    def refused(words, error=InvalidDataError, head=road.head, **options):
        with pytest.raises(error, match=words):
            afltool.counts(head, road.test, tmp_path / "o", **options)
        assert not (tmp_path / "o").exists()

    refused("has 4 rows of the group 'x'; expected none or at least 10", by=f"{sexes}:ward")
    refused("has the group 'f', which is not one of m, w", by=f"{sexes}:sex", groups=["m", "w"])
    refused("group of each row is needed", UsageError, groups=["f", "m"], min_group=5)


# ------------------------------------------------------------ bad input


def test_what_does_not_belong_together_is_refused_by_name(road, at, tmp_path):
    plain = afltool.counts(road.head, road.test, tmp_path / "a", client="a")
    other = afltool.counts(at / "other.h5", road.test, tmp_path / "b", client="b")
    bins = afltool.counts(road.head, road.test, tmp_path / "c", client="c", bins="0:1:15")
    ridge = r"head.options.heads\[0\].options.ridge is 3000.0 in these, "
    for path, words in ((other, ridge), (bins, r"heads\[0\].bins is '0:1:15' in these")):
        with pytest.raises(MismatchError, match=words):
            afltool.aggregate([plain, path], tmp_path / "sum.h5")
    with pytest.raises(UsageError, match="not solved yet"):
        afltool.counts(road.head0, road.test, tmp_path / "d", client="a")
    x = embeddings(tmp_path / "x.npz", 50, classes=3)
    three = afltool.import_embeddings(x, tmp_path / "three.h5")
    with pytest.raises(MismatchError, match="classes"):
        afltool.counts(road.head, three, tmp_path / "d", client="a")
    with pytest.raises(UsageError, match="no counts"):
        afltool.read_counts(road.total)


@pytest.mark.parametrize(
    "text", ["0:1", "0:1:16", "1:0:15", "0.01:1.01:15", "a", "0:1:0", "nan:1:15"]
)
def test_bins_are_checked(text):
    with pytest.raises(UsageError, match="LO:HI:COUNT"):
        parse_bins(text)


def changed(s: Statistics, name, cell, by) -> Statistics:
    arrays = {k: a.copy() for k, a in s.arrays.items()}
    arrays[name][cell] += by
    return replace(s, arrays=arrays)


@pytest.mark.parametrize(
    ("name", "cell", "by"),
    [("confusion-0", (0, 0), 1), ("confusion-1", (1, 1), -10**6), ("ranks-0", 0, 1),
     ("scores-0", (2, 1, 7), 1), ("scores-1", (0, 0, 0), -1), ("confidence-0", (1, 3), 1),
     ("pairs", (0, 0, 0), -10**6)],
)  # fmt: skip
def test_counts_that_no_rows_can_have_are_refused(at, tmp_path, name, cell, by):
    wrong = changed(load_statistics(at / "sum.h5"), name, cell, by)
    save_statistics(tmp_path / "w.h5", wrong, {"stage": "x", "options": {}, "inputs": {}})
    with pytest.raises(
        InvalidDataError, match=f"cannot be the statistics of any 200 rows: .*{name}"
    ):
        afltool.read_counts(tmp_path / "w.h5")


def test_arrays_of_other_shapes_are_refused(at, tmp_path):
    s = load_statistics(at / "sum.h5")
    for name, array in (("ranks-0", np.zeros(0, int)), ("scores-1", s.arrays["scores-1"][:, :1]),
                        ("pairs", np.zeros((2, 2), int)),
                        ("confusion-0", np.zeros((3, 4), int))):  # fmt: skip
        wrong = Statistics(s.phase, {**s.arrays, name: array}, s.class_counts, s.context, s.clients)
        path = save_statistics(
            tmp_path / f"{name}.h5", wrong, {"stage": "x", "options": {}, "inputs": {}}
        )
        with pytest.raises((CorruptFileError, InvalidDataError)):
            afltool.read_counts(path)


def test_the_command_refuses_figures_beside_counts(road, tmp_path, cli):
    words = ["evaluate", road.head, road.test, "--counts", "-o", tmp_path / "o"]
    for more in (
        ["--metrics", "auc"],
        ["--errors", tmp_path / "e.csv"],
        ["--confusion", tmp_path / "c.csv"],
    ):
        done = cli(*words, *more)
        assert done.exit_code == 2, done.output
        assert f"{more[0]} is not used with --counts" in done.output or more[0] in done.output
    assert cli("evaluate", road.head, road.test, "--counts").exit_code == 2
    assert not (tmp_path / "o").exists()


# ------------------------------------------------------------ what the total says


def references(S, y):
    """Each figure of pooled rows by scikit-learn, or by the formula of docs/format.md."""
    C, predicted, Y = S.shape[1], S.argmax(axis=1), np.eye(S.shape[1])[y]
    P = S.clip(0, 1)
    known = [c for c in range(C) if (y == c).any()]
    rows = Scored.of(P, P, y)
    mean = {"average": "macro", "zero_division": np.nan}
    return {
        "accuracy": skm.accuracy_score(y, predicted),
        "balanced-accuracy": skm.balanced_accuracy_score(y, predicted),
        "macro-precision": skm.precision_score(y, predicted, **mean),
        "f1": skm.f1_score(y, predicted, **mean),
        "kappa": skm.cohen_kappa_score(y, predicted),
        "mcc": skm.matthews_corrcoef(y, predicted),
        "auc": np.mean([skm.roc_auc_score(y == c, S[:, c]) for c in known]),
        "average-precision": np.mean([skm.average_precision_score(y == c, S[:, c]) for c in known]),
        "ece": ece(rows, np.ones(len(y))),
        "brier": ((P - Y) ** 2).sum(axis=1).mean() / (2 if C == 2 else 1),
    }


def check_figures(found, S, y):
    """Exact figures are scikit-learn's to the last bits, others within the bound that is said."""
    known = references(S, y)
    assert known.keys() - found["metrics"].keys() == {"ece", "brier"}, "least-squares scores"
    for name in known.keys() & found["metrics"].keys():
        figure, wanted = found["metrics"][name], known[name]
        if figure["is"] == "exact":
            assert figure["value"] == pytest.approx(wanted, rel=1e-14, abs=1e-15), name
        else:
            assert figure["least"] - 1e-9 <= wanted <= figure["most"] + 1e-9, name
            assert figure["error"] == pytest.approx((figure["most"] - figure["least"]) / 2)


def test_figures_of_a_total_are_those_of_the_pooled_rows(road, at):
    found = afltool.info(at / "sum.h5")["evaluations"]
    for head, one in zip((road.head, at / "other.h5"), found, strict=True):
        check_figures(one, *pooled(road, head))
        plain = afltool.evaluate(head, road.test)
        same = ("top1", "n", "per_class", "confusion")
        assert {k: one[k] for k in same} == {k: plain[k] for k in same}
    against = afltool.evaluate(road.head, road.test, against=at / "other.h5")["against"]
    (told,) = found[0]["others"]
    tested = ("only_this", "only_other", "p_value")
    assert [told[k] for k in tested] == [against[k] for k in tested]


@settings(max_examples=40)
@given(st.data())
def test_figures_lie_within_their_bounds_for_any_scores(data):
    """Also with many equal scores, scores beyond the bins, and classes without rows."""
    classes, n = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    y = rng.integers(0, data.draw(st.integers(1, classes)), n)
    S = rng.normal(size=(n, classes)) * data.draw(st.sampled_from([0.01, 0.2, 2.0]))
    S[np.arange(n), y] += data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    S = np.rint(S * 2.0 ** data.draw(st.sampled_from([1, 3, 7, 20]))) / 2.0**20
    bins = parse_bins(data.draw(st.sampled_from(["0:1:15", "0:1:240", "-0.5:1.5:240"])))
    into = {k: np.zeros(s, int) for k, s in counting.shapes(classes, bins).items()}
    counting.count(into, S, S, y, bins)
    edges, mine = np.array(bins.edges), S.argmax(axis=1)
    for c in range(classes):
        area, precision = fc.areas(into["scores"])[c], fc.average_precisions(into["scores"])[c]
        if 0 < (y == c).sum() < n:
            wanted = skm.roc_auc_score(y == c, S[:, c])
            assert area.least - 1e-12 <= wanted <= area.most + 1e-12
        if (y == c).any():
            wanted = skm.average_precision_score(y == c, S[:, c])
            assert precision.least - 1e-12 <= wanted <= precision.most + 1e-12
    P, Y = S.clip(0, 1), np.eye(classes)[y]
    brier = ((P - Y) ** 2).sum() / n / (2 if classes == 2 else 1)
    found = fc.brier(into["scores"], edges)
    assert found.least - 1e-9 <= brier <= found.most + 1e-9
    found = fc.ece(into["confidence"], edges)
    wanted = ece(Scored.of(P, P, y), np.ones(n))
    if np.array_equal(mine, P.argmax(axis=1)):
        assert found.least - 1e-9 <= wanted <= found.most + 1e-9
    for share in (0.1, 0.5, 1.0):
        found = fc.quantile(into["confidence"].sum(axis=0), edges, share)
        wanted = np.quantile(S.max(axis=1), share, method="inverted_cdf")
        assert found.least - 1e-9 <= wanted <= found.most + 1e-9


def test_intervals_are_wilsons():
    for hits, n in ((0, 5), (3, 7), (95, 100), (10**6, 10**6)):
        wanted = binomtest(hits, n).proportion_ci(method="wilson")
        assert fc.wilson(hits, n) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def few(path, out, least):
    """The same counts of a round whose groups have at least so many rows."""
    s = load_statistics(path)
    options = {**s.context.head["options"], "min_group": least}
    context = replace(s.context, head={**s.context.head, "options": options})
    return save_statistics(
        out, replace(s, context=context), {"stage": "x", "options": {}, "inputs": {}}
    )


def test_groups_of_a_total_with_few_rows_are_not_shown(road, sexes, tmp_path):
    """Where a site was taken out: the small group is held back, and another that would tell it."""
    part = afltool.counts(road.head, road.test, tmp_path / "o", by=f"{sexes}:ward", min_group=4)
    few(part, tmp_path / "few.h5", 5)
    (found,) = afltool.info(tmp_path / "few.h5")["evaluations"]
    assert found["by"]["x"] == {"n": None, "accuracy": None, "balanced-accuracy": None, "f1": None}
    assert found["by"]["y"]["n"] is None
    assert (afltool.read_counts(tmp_path / "few.h5").heads[0].groups == -1).all()


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([79, 9, 0, 12, 100], "bd"), ([190, 10, 0, 0, 0], ""), ([3, 2, 11, 184, 0], "abc"),
        ([6, 5, 189, 0, 0], "ab"), ([198, 2, 0, 0, 0], "ab"),
    ],
)  # fmt: skip
def test_what_is_held_back_cannot_be_told_from_the_rest(road, tmp_path, sizes, held):
    with open_features(road.test) as rows:
        ids = [one.decode() for one in rows.row_ids]
    names = np.repeat(list("abcde"), sizes)
    lines = [f"{one},{name}" for one, name in zip(ids, names, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["row,of", *lines]) + "\n")
    how = {"by": f"{tmp_path / 't.csv'}:of", "groups": list("abcde"), "min_group": 1}
    found = few(afltool.counts(road.head, road.test, tmp_path / "o", **how), tmp_path / "f.h5", 10)
    counted = dict(zip("abcde", afltool.read_counts(found).heads[0].groups, strict=True))
    (told,) = afltool.info(found)["evaluations"]
    for name, n in zip("abcde", sizes, strict=True):
        assert told["by"][name]["n"] == (None if name in held else n)
        assert (counted[name] == -1).all() if name in held else counted[name].sum() == n


def test_pictures_and_tables_read_a_total(road, at, tmp_path, cli):
    for number, noun in enumerate(("confusion", "roc")):
        words = ["plot", noun, at / "sum.h5", "--number", number, "-o"]
        assert cli(*words, tmp_path / f"{noun}{number}.svg").exit_code == 0
    refused = cli("plot", "reliability", at / "sum.h5", "-o", tmp_path / "r.svg")
    assert refused.exit_code == 2
    assert "a linear head are no probabilities" in " ".join(refused.stderr.split())
    assert cli("plot", "roc", at / "sum.h5", "--number", 2, "-o", tmp_path / "n.png").exit_code == 2
    shown = cli("table", at / "sum.h5").stdout
    accuracy = afltool.evaluate(road.head, road.test)["top1"]
    assert "| accuracy" in shown
    assert f"{accuracy:.4f} (" in shown
    records = json.loads(cli("table", at / "sum.h5", "--format", "json").stdout)
    assert {one["is"] for one in records} == {"exact", "bound"}
    assert len({one["digest"] for one in records}) == 2
    assert any(one["of"] == "class 3" and one["figure"] == "sensitivity" for one in records)
    assert cli("table", at / "sum.h5", "--format", "csv").stdout.startswith("head,digest,of,figure")
    assert r"\begin{tabular}{lrr}" in cli("table", at / "sum.h5", "--format", "latex").stdout
    done = cli("table", at / "sum.h5", "--value", "top1")
    assert done.exit_code == 2
    assert "--value is for the table of a study" in done.output


def pictures_of(name, split, most):
    """Pictures as rows of pixels in 0 … 1, at most so many, and their classes."""
    found = open_dataset(name, split)
    at = np.random.default_rng(0).permutation(len(found))[:most]
    side = (16, 16) if name.startswith("imagefolder") else None
    shown = (found.load(i) if side is None else found.load(i).resize(side) for i in at)
    x = np.stack([np.asarray(one, dtype=np.float32) / 255 for one in shown])
    x = x if side else x[..., 0]  # grey
    return x.reshape(len(x), -1), found.labels[at]


def digits_of(name, split, most):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rows = slice(int(split == "test"), None, 2)
    return x[rows] / 16, y[rows]


def real_images():
    """Digits, Fashion-MNIST of Debian's package, and folders of images below the data root."""
    yield pytest.param("digits", digits_of, 0.001, id="digits")
    absent = pytest.mark.skipif(not DEBIAN_FASHION_MNIST.is_dir(), reason="no Debian package")
    yield pytest.param("fashion-mnist", pictures_of, 0.005, id="fashion-mnist", marks=absent)
    for folder in sorted(
        one.parent for one in Path(os.environ.get("AFLTOOL_DATA") or "afl-data").glob("*/train")
    ):
        yield pytest.param(f"imagefolder:{folder}", pictures_of, 0.01, id=folder.name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read", "most"), list(real_images()))
def test_figures_of_real_images_are_scikit_learns_for_any_partition(name, read, most, tmp_path):
    """Of images that the head has not seen. Shares of rows are equal to the last bit, other exact
    figures to a few bits of their sums, the others within their bounds."""
    files = {}
    for split in ("train", "test"):
        x, y = read(name, split, 2000)
        np.savez(tmp_path / f"{split}.npz", x=x, y=y)
        files[split] = afltool.import_embeddings(
            tmp_path / f"{split}.npz", tmp_path / f"{split}.h5"
        )
    train, test = files["train"], files["test"]
    total = afltool.local_stats(train, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "head.h5", head_options={"ridge": 1.0})
    digests = {afltool.info(afltool.counts(head, test, tmp_path / "one", client="a"))["digest"]}
    for number, how in enumerate(({"alpha": 0.1}, {"scheme": "iid"}, {"alpha": 100.0})):
        parts = afltool.partition(test, tmp_path / f"p{number}.h5", clients=20 + number, **how)
        stats = afltool.counts(head, test, tmp_path / f"stats{number}", partition=parts)
        path = afltool.aggregate([stats], tmp_path / f"sum{number}.h5")
        digests.add(afltool.info(path)["digest"])
    assert len(digests) == 1
    with open_features(test) as rows:
        S, labels = load_head(head).head.scores(rows.rows(0, len(rows))), rows.labels
    (found,) = afltool.info(path)["evaluations"]
    check_figures(found, S, labels)
    check_shares(found, S, labels)
    assert found["metrics"]["auc"]["error"] < most
    (head,) = afltool.read_counts(path).heads
    assert fc.ece(head.confidence, head.edges).error < 0.005


def check_shares(found, S, y):
    """Figures that are one division of counts are scikit-learn's to the last bit."""
    predicted, each = S.argmax(axis=1), list(found["classes"].values())
    assert found["confusion"] == confusion_matrix(y, predicted).tolist()
    assert found["metrics"]["accuracy"]["value"] == skm.accuracy_score(y, predicted)
    for k, share in found["top"].items():
        if int(k) < S.shape[1]:
            assert share == top_k_accuracy_score(y, S, k=int(k))
    for name, of in (("sensitivity", skm.recall_score), ("precision", skm.precision_score)):
        wanted = of(y, predicted, average=None, zero_division=np.nan)
        assert [one[name]["value"] for one in each] == wanted.tolist()
    f1 = skm.f1_score(y, predicted, average=None, zero_division=np.nan)
    assert [one["f1"]["value"] for one in each] == f1.tolist()


# ------------------------------------------------------------ many classes


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A head of 1,100 classes, its test rows, and counts of two sites of them by group."""
    at = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    C, y = 1100, np.arange(1500) % 1100
    names = [f"c{k}" for k in range(C)]
    middle = rng.normal(size=(C, 16))
    np.savez(at / "train.npz", x=middle, y=np.arange(C))
    np.savez(at / "test.npz", x=middle[y] + 0.2 * rng.normal(size=(1500, 16)), y=y)
    for part in ("train", "test"):
        afltool.import_embeddings(at / f"{part}.npz", at / f"{part}.h5", classes=names)
    total = afltool.local_stats(at / "train.h5", "linear", at / "t.h5", client="a", sum=True)
    afltool.solve(total, at / "head.h5", head_options={"ridge": 1.0})
    with open_features(at / "test.h5") as rows:
        ids = [one.decode() for one in rows.row_ids]
    lines = [f"{one},{'f' if i % 3 else 'm'}" for i, one in enumerate(ids)]
    (at / "s.csv").write_text("\n".join(["row,sex", *lines]) + "\n")
    parts = afltool.partition(at / "test.h5", at / "p.h5", scheme="iid", clients=2)
    afltool.counts(
        at / "head.h5", at / "test.h5", at / "c", partition=parts, by=f"{at / 's.csv'}:sex"
    )
    (at / "trial").mkdir()
    afltool.aggregate([at / "c"], at / "trial" / "counts.h5")
    return at


def dense(found):
    """A confusion matrix from the cells of an evaluation."""
    M = np.zeros((1100, 1100), int)
    cells = found["confusion"]
    M[cells["true"], cells["predicted"]] = cells["rows"]
    return M


def test_many_classes_have_cells_and_tallies_in_place_of_matrices(many, tmp_path, cli):
    head, total = many / "head.h5", many / "trial" / "counts.h5"
    S, y = load_head(head).head, None
    with open_features(many / "test.h5") as rows:
        S, y = S.scores(rows.rows(0, len(rows))), rows.labels.copy()
    wanted = confusion_matrix(y, S.argmax(axis=1), labels=range(1100))
    words = ["evaluate", head, many / "test.h5", "-o", tmp_path / "m.json"]
    done = cli(*words, "--confusion", tmp_path / "c.csv", "--metrics", "auc,f1", "--samples", 0)
    assert done.exit_code == 0, done.output
    assert "200 of 1100 classes; --json has them all" in " ".join(done.output.split())
    found = json.loads((tmp_path / "m.json").read_text())
    assert np.array_equal(dense(found), wanted)
    assert found["top1"] == skm.accuracy_score(y, S.argmax(axis=1))
    assert found["top5"] == top_k_accuracy_score(y, S, k=5, labels=range(1100))
    header, *lines = (tmp_path / "c.csv").read_text().splitlines()
    assert header == "true,predicted,rows"
    assert len(lines) == np.count_nonzero(wanted)
    assert len(found["roc"]) == 100
    areas = [skm.roc_auc_score(y == c, S[:, c]) for c in range(1100)]
    assert found["metrics"]["auc"]["value"] == pytest.approx(np.mean(areas))
    assert max(one["auc"] for one in found["roc"].values()) <= np.sort(areas)[99] + 1e-12

    (counted,) = afltool.info(total)["evaluations"]
    assert {k: counted[k] for k in ("top1", "top5", "n", "per_class")} == {
        k: found[k] for k in ("top1", "top5", "n", "per_class")
    }
    check_figures(counted, S, y)
    assert "confusion" not in counted
    arrays = afltool.read_counts(total)
    assert arrays.heads[0].confusion is None
    assert max(a.size for a in arrays.statistics.arrays.values()) == 1100 * 2 * 240
    for number, group in enumerate(("f", "m")):
        mine = (np.arange(1500) % 3 > 0) == (group == "f")
        part = confusion_matrix(y[mine], S[mine].argmax(axis=1), labels=range(1100))
        tallies = np.array([part.diagonal(), part.sum(axis=1), part.sum(axis=0)])
        assert np.array_equal(arrays.heads[0].groups[number], tallies)
        accuracy = skm.accuracy_score(y[mine], S[mine].argmax(axis=1))
        assert counted["by"][group]["accuracy"] == accuracy
    one, other = (afltool.read_counts(path).statistics for path in sorted((many / "c").iterdir()))
    assert (one + other).digest() == arrays.statistics.digest()


def test_many_classes_are_drawn_and_listed(many, tmp_path, cli):
    total = many / "trial" / "counts.h5"
    cli("evaluate", many / "head.h5", many / "test.h5", "-o", tmp_path / "m.json")
    out = tmp_path / "c.svg"
    assert cli("plot", "confusion", tmp_path / "m.json", "-o", out).exit_code == 0
    assert "2 classes in a line" in out.read_text()
    refused = cli("plot", "confusion", total, "-o", tmp_path / "no.svg")
    assert refused.exit_code == 2
    assert "no confusion matrix of so many" in " ".join(refused.stderr.split())
    words = ["plot", "roc", total, "--positive", "c7", "-o", tmp_path / "roc.svg"]
    assert cli(*words).exit_code == 0
    assert cli("report", many / "trial", "-o", tmp_path / "page.html").exit_code == 0
    assert "1000 of 1100 classes" in (tmp_path / "page.html").read_text()
    assert cli("table", total, "--format", "csv").stdout.count("sensitivity") == 1100
    found = json.loads((tmp_path / "m.json").read_text())
    for wrong in ({**found["confusion"], "true": [9999]}, {"true": [0], "predicted": [0, 1]}):
        (tmp_path / "w.json").write_text(json.dumps({**found, "confusion": wrong}))
        assert (
            cli("plot", "confusion", tmp_path / "w.json", "-o", tmp_path / "w.svg").exit_code == 3
        )


def test_tallies_that_no_rows_can_have_are_refused(many, tmp_path):
    s = load_statistics(many / "trial" / "counts.h5")
    for name, cell in (("tallies-0", (0, 3)), ("tallies-0", (1, 3)), ("tallies-0", (2, 3)),
                       ("groups-0", (1, 2, 3))):  # fmt: skip
        path = tmp_path / f"{name}-{cell[-2]}.h5"
        wrong = changed(s, name, cell, 10**6)
        save_statistics(path, wrong, {"stage": "x", "options": {}, "inputs": {}})
        with pytest.raises(InvalidDataError, match=f"1500 rows: .*{name}"):
            afltool.read_counts(path)
