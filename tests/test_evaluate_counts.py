"""Evaluation as statistics: counts of scored rows, which add up as all statistics do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.special
import sklearn.metrics as skm
from conftest import counts_of_heads, embeddings
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, rankdata
from sklearn.metrics import confusion_matrix, top_k_accuracy_score

import afltool
from afltool.errors import CorruptFileError, InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.files.statistics import load_statistics, save_statistics
from afltool.files.tables import write_confusion
from afltool.math.metrics import counting
from afltool.math.metrics import from_counts as fc
from afltool.math.metrics.figures import Scored, ece
from afltool.runs.config import RunConfig
from afltool.values.ridge_spec import ONE, parse_bins
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
        return load_head(head or road.head).head.decision_function(
            rows.rows(0, len(rows))
        ), rows.labels


MADE_BY = {"stage": "x", "options": {}, "inputs": {}}


# ------------------------------------------------------------ laws


def test_counts_add_up_to_those_of_the_pooled_rows_for_any_partition(road, at, tmp_path):
    """And a client is taken out exactly."""
    wanted = afltool.info(at / "one" / "client-one.h5")["digest"]
    assert afltool.info(at / "sum.h5")["digest"] == wanted
    parts = afltool.partition(road.test, tmp_path / "p.h5", clients=7, alpha=0.05)
    heads, out = [road.head, at / "other.h5"], tmp_path / "again.h5"
    counts_of_heads(heads, road.test, out, partition=parts, sum=True)
    assert afltool.info(out)["digest"] == wanted
    files = sorted((at / "stats").iterdir())
    less = afltool.aggregate([at / "sum.h5"], tmp_path / "less.h5", subtract=[files[2]])
    three = afltool.aggregate([f for f in files if f != files[2]], tmp_path / "three.h5")
    assert afltool.info(less)["digest"] == afltool.info(three)["digest"]


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
        for k in (1, 2, 3):
            wanted = top_k_accuracy_score(y, S, k=k, labels=range(4), normalize=False)
            assert counts.ranks[:k].sum() == wanted
        assert counts.digest == afltool.info(head)["digest"]
    pairs = found.statistics.arrays["pairs"].tolist()
    assert pairs == [confusion_matrix(*right, labels=[False, True]).tolist()]


def test_probabilities_are_counted_where_a_head_has_them(road, tmp_path):
    config = RunConfig(
        train_features=road.train, test_features=road.test, head="softmax", clients=1,
        head_options={"rounds": 2},
    )  # fmt: skip
    softmax = afltool.run(config, tmp_path / "RUN") / "head-final.h5"
    counts = afltool.counts(softmax, road.test, tmp_path / "o", client="a")
    (found,) = afltool.read_counts(counts).heads
    assert found.probabilities
    assert (found.edges[0], found.edges[-1]) == (0.0, 1.0)
    S, y = pooled(road, softmax)
    P = scipy.special.softmax(S, axis=1)
    at = np.minimum(np.ceil(P[y == 1, 1] * 240) - 1, 239).astype(int)
    assert np.array_equal(found.scores[1, 1], np.bincount(at, minlength=240))


def areas(S, y):
    """AUC of each class by ranks; NaN for a class without rows, or with all."""
    ranks, found = rankdata(S, axis=0), []
    for c in range(S.shape[1]):
        own, n = ranks[y == c, c], int((y == c).sum())
        below = own.sum() - n * (n + 1) / 2
        found.append(below / (n * (len(y) - n)) if 0 < n < len(y) else np.nan)
    return np.array(found)


def references(S, y):
    """Each figure of pooled rows by scikit-learn, or by the formula of docs/format.md."""
    predicted, P = S.argmax(axis=1), S.clip(0, 1)
    mean = {"average": "macro", "zero_division": np.nan}
    return {
        "accuracy": skm.accuracy_score(y, predicted),
        "balanced-accuracy": skm.balanced_accuracy_score(y, predicted),
        "macro-precision": skm.precision_score(y, predicted, **mean),
        "f1": skm.f1_score(y, predicted, **mean),
        "auc": np.nanmean(areas(S, y)),
        "ece": ece(Scored.of(P, P, y), np.ones(len(y))),
    }


def check_figures(found, S, y):
    """Exact figures are scikit-learn's to the last bits, others within the bound that is said."""
    known = references(S, y)
    assert known.keys() - found["metrics"].keys() == {"ece"}, "least-squares scores"
    for name in known.keys() & found["metrics"].keys():
        figure, wanted = found["metrics"][name], known[name]
        if figure["is"] == "exact":
            assert figure["value"] == pytest.approx(wanted, rel=1e-14, abs=1e-15), name
        else:
            assert figure["least"] - 1e-9 <= wanted <= figure["most"] + 1e-9, name
            assert figure["error"] == pytest.approx((figure["most"] - figure["least"]) / 2)
    of_class = {"average": None, "zero_division": np.nan}
    for name, of in (
        ("sensitivity", skm.recall_score), ("precision", skm.precision_score), ("f1", skm.f1_score)
    ):  # fmt: skip
        each = np.array([one[name]["value"] for one in found["classes"].values()], float)
        np.testing.assert_array_equal(each, of(y, S.argmax(axis=1), **of_class))


def test_figures_of_a_total_are_those_of_the_pooled_rows(road, at):
    found = afltool.info(at / "sum.h5")["evaluations"]
    for head, one in zip((road.head, at / "other.h5"), found, strict=True):
        check_figures(one, *pooled(road, head))
        plain = afltool.evaluate(head, road.test)
        same = ("top1", "n", "per_class", "confusion")
        assert {k: one[k] for k in same} == {k: plain[k] for k in same}


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
    P = S.clip(0, 1)
    found = fc.ece(into["confidence"], edges)
    wanted = ece(Scored.of(P, P, y), np.ones(n))
    if np.array_equal(mine, P.argmax(axis=1)):
        assert found.least - 1e-9 <= wanted <= found.most + 1e-9


def test_intervals_are_wilsons():
    for hits, n in ((0, 5), (3, 7), (95, 100), (10**6, 10**6)):
        wanted = binomtest(hits, n).proportion_ci(method="wilson")
        assert fc.wilson(hits, n) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


# ------------------------------------------------------------ groups


@pytest.fixture(scope="module")
def table(road, tmp_path_factory):
    """``table({column: value of each row})``: a table of the test rows."""
    at = tmp_path_factory.mktemp("tables") / "t.csv"
    with open_features(road.test) as rows:
        ids = [one.decode() for one in rows.row_ids]

    def of(**columns):
        pd.DataFrame({"row": ids, **columns}).to_csv(at, index=False)
        return at

    return of


def test_groups_are_counted_apart_and_small_or_unknown_ones_are_refused(road, table, tmp_path):
    i = np.arange(200)
    path = table(sex=np.where(i % 3, "f", "m"), ward=np.where(i < 4, "x", "y"))
    counts = afltool.counts(
        road.head, road.test, tmp_path / "c", client="a", group_by=f"{path}:sex"
    )
    found, (S, y) = afltool.read_counts(counts), pooled(road)
    assert found.groups == ("f", "m")
    for number, mine in enumerate((i % 3 > 0, i % 3 == 0)):
        wanted = confusion_matrix(y[mine], S[mine].argmax(axis=1))
        assert np.array_equal(found.heads[0].groups[number], wanted)
    for words, kind, options in (
        ("has 4 rows of the group 'x'; expected none or at least 10", InvalidDataError,
         {"group_by": f"{path}:ward"}),
        ("has the group 'f', which is not one of m, w", InvalidDataError,
         {"group_by": f"{path}:sex", "groups": ["m", "w"]}),
        ("--groups is used only with --group-by", UsageError,
         {"groups": ["f", "m"], "min_group": 5}),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            afltool.counts(road.head, road.test, tmp_path / "o", **options)
        assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([79, 9, 0, 12, 100], "bd"), ([190, 10, 0, 0, 0], ""), ([3, 2, 11, 184, 0], "abc"),
        ([6, 5, 189, 0, 0], "ab"), ([198, 2, 0, 0, 0], "ab"),
    ],
)  # fmt: skip
def test_what_is_held_back_cannot_be_told_from_the_rest(road, table, tmp_path, sizes, held):
    """Where a site was taken out: the small group is held back, and another that would tell it."""
    how = {"group_by": f"{table(of=np.repeat(list('abcde'), sizes))}:of", "groups": list("abcde")}
    path = afltool.counts(road.head, road.test, tmp_path / "o", client="a", min_group=1, **how)
    s = load_statistics(path)
    options = {**s.context.head["options"], "min_group": 10}  # the same counts of another round
    context = replace(s.context, head={**s.context.head, "options": options})
    found = save_statistics(tmp_path / "few.h5", replace(s, context=context), MADE_BY)
    counted = dict(zip("abcde", afltool.read_counts(found).heads[0].groups, strict=True))
    (told,) = afltool.info(found)["evaluations"]
    for name, n in zip("abcde", sizes, strict=True):
        if name in held:
            none = dict.fromkeys(("n", "accuracy", "balanced-accuracy", "f1"))
            assert told["by"][name] == none
            assert (counted[name] == -1).all()
        else:
            assert told["by"][name]["n"] == counted[name].sum() == n


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


def test_bins_are_checked():
    for text in ("0:1", "0:1:16", "1:0:15", "0.01:1.01:15", "a", "nan:1:15"):
        with pytest.raises(UsageError, match="LO:HI:COUNT"):
            parse_bins(text)


def changed(s: Statistics, name, cell, by) -> Statistics:
    arrays = {k: a.copy() for k, a in s.arrays.items()}
    arrays[name][cell] += by
    return replace(s, arrays=arrays)


def test_counts_that_no_rows_can_have_are_refused(at, tmp_path):
    whole = load_statistics(at / "sum.h5")
    for name, cell, by in (
        ("confusion-0", (0, 0), 1), ("confusion-1", (1, 1), -10**6), ("ranks-0", 0, 1),
        ("scores-0", (2, 1, 7), 1), ("confidence-0", (1, 3), 1), ("pairs", (0, 0, 0), -10**6),
    ):  # fmt: skip
        path = save_statistics(tmp_path / "w.h5", changed(whole, name, cell, by), MADE_BY)
        said = f"cannot be the statistics of any 200 rows: .*{name}"
        with pytest.raises(InvalidDataError, match=said):
            afltool.read_counts(path)
        shorter = replace(whole, arrays={**whole.arrays, name: whole.arrays[name][:-1]})
        save_statistics(path, shorter, MADE_BY)
        with pytest.raises((CorruptFileError, InvalidDataError)):
            afltool.read_counts(path)


def test_pictures_and_tables_read_a_total(road, at, tmp_path, cli):
    one = afltool.counts(road.head, road.test, tmp_path / "one", client="one")
    assert cli("plot", "confusion", one, "-o", tmp_path / "c.svg").exit_code == 0
    for file, said in ((one, "has no reliability"), (at / "sum.h5", "2 heads")):
        refused = cli("plot", "reliability", file, "-o", tmp_path / "r.svg")
        assert refused.exit_code == 2
        assert said in " ".join(refused.stderr.split())
    shown = cli("table", at / "sum.h5").stdout
    assert f"{afltool.evaluate(road.head, road.test)['top1']:.4f} (" in shown
    records = json.loads(cli("table", at / "sum.h5", "--format", "json").stdout)
    assert {one["is"] for one in records} == {"exact", "bound"}
    assert len({one["digest"] for one in records}) == 2
    assert any(one["of"] == "class 3" and one["figure"] == "sensitivity" for one in records)
    done = cli("table", at / "sum.h5", "--value", "top1")
    assert done.exit_code == 2
    assert "--value is for the table of a study" in done.output


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
        at / "head.h5", at / "test.h5", at / "c", partition=parts, group_by=f"{at / 's.csv'}:sex"
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
    head, total = load_head(many / "head.h5").head, many / "trial" / "counts.h5"
    with open_features(many / "test.h5") as rows:
        S, y = head.decision_function(rows.rows(0, len(rows))), rows.labels.copy()
    wanted = confusion_matrix(y, S.argmax(axis=1), labels=range(1100))
    words = ["evaluate", many / "head.h5", many / "test.h5", "-o", tmp_path / "m.json"]
    done = cli(*words, "--metrics", "auc,f1", "--bootstrap-samples", 0)
    assert done.exit_code == 0, done.output
    assert "200 of 1100; --json has them all" in " ".join(done.output.split())
    found = json.loads((tmp_path / "m.json").read_text())
    assert np.array_equal(dense(found), wanted)
    assert found["top1"] == skm.accuracy_score(y, S.argmax(axis=1))
    assert found["top5"] == top_k_accuracy_score(y, S, k=5, labels=range(1100))
    path = write_confusion(found, tmp_path / "c.csv")
    header, *lines = path.read_text().splitlines()
    assert header == "true,predicted,rows"
    assert len(lines) == np.count_nonzero(wanted)
    each = areas(S, y)
    assert found["metrics"]["auc"]["value"] == pytest.approx(np.mean(each))
    assert len(found["roc"]) == 100
    assert max(one["auc"] for one in found["roc"].values()) <= np.sort(each)[99] + 1e-12
    (counted,) = afltool.info(total)["evaluations"]
    same = ("top1", "top5", "n", "per_class")
    assert {k: counted[k] for k in same} == {k: found[k] for k in same}
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
        assert counted["by"][group]["accuracy"] == part.trace() / mine.sum()
    one, other = (afltool.read_counts(path).statistics for path in sorted((many / "c").iterdir()))
    assert (one + other).digest() == arrays.statistics.digest()
    for name, cell in (("tallies-0", (0, 3)), ("tallies-0", (2, 3)), ("groups-0", (1, 2, 3))):
        wrong = changed(load_statistics(total), name, cell, 10**6)
        path = save_statistics(tmp_path / "wrong.h5", wrong, MADE_BY)
        with pytest.raises(InvalidDataError, match=f"1500 rows: .*{name}"):
            afltool.read_counts(path)
