"""`evaluate --metrics, --by, --group, --against, --errors`: through files, as a user would."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.special
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss, recall_score, roc_auc_score

import afltool
from afltool.errors import CorruptFileError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads.checks import reported_scores
from afltool.math.gram import real
from afltool.math.metrics.counting import score_metrics
from afltool.math.metrics.figures import Scored
from afltool.show.curves import plot_roc

plt_image = pytest.importorskip("matplotlib.image")


@pytest.fixture(scope="module")
def weaker(road, tmp_path_factory):
    """A head that sees few rows."""
    at = tmp_path_factory.mktemp("weaker")
    stats = afltool.local_stats(
        road.train, road.head0, at / "stats", partition=road.clients, only="0"
    )
    return afltool.solve(
        afltool.aggregate([stats], at / "total.h5"), at / "head.h5", head_options={"ridge": 1e4}
    )


@pytest.fixture(scope="module")
def softmax(road, tmp_path_factory):
    at = tmp_path_factory.mktemp("softmax")
    head = afltool.head("softmax", at / "head-0.h5", head_options={"rounds": 3})
    for k in range(1, 10):
        total = afltool.local_stats(
            road.train, head, at / f"total-{k}.h5", partition=road.clients, sum=True
        )
        head = afltool.solve(total, at / f"head-{k}.h5", head=head)
        if load_head(head)[0].phase() is None:
            return head
    raise AssertionError("the softmax head never ends")


def scored(head, features):
    loaded, _ = load_head(head)
    with open_features(features) as rows:
        X = np.vstack([real(X) for _, X in rows.blocks()])
        ids = [i.decode() for i in rows.row_ids.tolist()]
        S = loaded.scores(X)
        return rows.labels.copy(), S, reported_scores(loaded, S), ids


@pytest.fixture
def sites(road, tmp_path):
    """A table that gives every test row a site and a patient."""
    _, _, _, ids = scored(road.head, road.test)
    table = tmp_path / "sites.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "site", "patient"])
        writer.writerows([i, f"site {k % 3}", k // 4] for k, i in enumerate(ids))
    return table


def test_figures_are_scikit_learns(road, softmax, cli):
    found = json.loads(
        cli(
            "evaluate", softmax, road.test, "--json",
            "--metrics",
            "balanced-accuracy,f1,auc,macro-sensitivity,macro-specificity,log-loss,ece",
        ).stdout
    )  # fmt: skip
    y, S, P, _ = scored(softmax, road.test)
    figures = found["metrics"]
    predicted = S.argmax(axis=1)
    assert figures["balanced-accuracy"]["value"] == pytest.approx(
        balanced_accuracy_score(y, predicted)
    )
    assert figures["f1"]["value"] == pytest.approx(f1_score(y, predicted, average="macro"))
    assert figures["log-loss"]["value"] == pytest.approx(log_loss(y, P))
    each = [roc_auc_score(y == k, P[:, k]) for k in range(4)]
    assert figures["auc"]["value"] == pytest.approx(np.mean(each))
    recall = {
        side: np.mean([recall_score(y == k, predicted == k, pos_label=side) for k in range(4)])
        for side in (True, False)
    }
    assert figures["macro-sensitivity"]["value"] == pytest.approx(recall[True])
    assert figures["macro-specificity"]["value"] == pytest.approx(recall[False])
    means = {name for name, one in figures.items() if one.get("average") == "macro"}
    assert means == {"f1", "auc", "macro-sensitivity", "macro-specificity"}
    assert figures["ece"]["value"] == pytest.approx(calibration_error(y, P))
    assert [found["roc"][str(k)]["auc"] for k in range(4)] == pytest.approx(each)
    for one in figures.values():
        assert one["low"] <= one["value"] <= one["high"]
    assert sum(found["reliability"]["weight"]) == len(y)
    assert found["roc"]["0"]["true_positive"][-1] == 1


@pytest.fixture(scope="module")
def tumours(tmp_path_factory):
    """A head of two classes, in the order malignant, benign, and test rows."""
    at = tmp_path_factory.mktemp("tumours")
    rng = np.random.default_rng(0)
    classes = ["malignant", "benign"]
    for name, n in (("train", 200), ("test", 120)):
        y = rng.random(n) < 0.7
        x = rng.normal(size=(n, 4)) + 0.8 * y[:, None]
        np.savez(at / f"{name}.npz", x=x, y=np.array(classes)[y.astype(int)])
        afltool.import_embeddings(at / f"{name}.npz", at / f"{name}.h5", classes=classes)
    total = afltool.local_stats(at / "train.h5", "linear", at / "t.h5", client="a", sum=True)
    return afltool.solve(total, at / "head.h5", head_options={"ridge": 1.0}), at / "test.h5"


@pytest.mark.parametrize("positive", [None, "malignant", "benign"])
def test_figures_of_one_class_name_it_everywhere(tumours, positive, tmp_path, cli):
    head, test = tumours
    y, S, _, ids = scored(head, test)
    named, k = positive or "benign", ["malignant", "benign"].index(positive or "benign")
    (tmp_path / "s.csv").write_text("row,site\n" + "".join(f"{i},a\n" for i in ids))
    asked = ["--metrics", "sensitivity,specificity,auc,f1", "--by", f"{tmp_path / 's.csv'}:site",
             *([] if positive is None else ["--positive", positive]),
             "-o", tmp_path / "e.json"]  # fmt: skip
    done = cli("evaluate", head, test, *asked)
    assert ("the positive class is benign, the second of two" in done.stderr) == (positive is None)
    shown = " ".join(done.stdout.split())
    assert f"sensitivity (positive class: {named})" in shown
    assert "f1 (mean over classes)" in shown
    found = json.loads((tmp_path / "e.json").read_text())["metrics"]
    recall = [recall_score(y == k, S.argmax(axis=1) == k, pos_label=side) for side in (True, False)]
    assert found["sensitivity"]["value"] == pytest.approx(recall[0])
    assert found["specificity"]["value"] == pytest.approx(recall[1])
    assert {found[name]["positive"] for name in ("sensitivity", "specificity", "auc")} == {named}
    other = "benign" if named == "malignant" else "malignant"
    drawn = afltool.roc_picture(tmp_path / "e.json", tmp_path / "roc.svg").read_text()
    assert f"positive class: {named} against {other}" in drawn
    afltool.export(
        head, tmp_path / "h.onnx", card=tmp_path / "card.md", metrics=tmp_path / "e.json"
    )
    assert (
        f"| specificity (positive class: {named}) | {recall[1]:.4f}"
        in (tmp_path / "card.md").read_text()
    )


def test_a_figure_of_one_class_of_many_needs_its_name(road, cli):
    for name in ("sensitivity", "specificity"):
        done = cli("evaluate", road.head, road.test, "--metrics", f"f1,{name}")
        assert done.exit_code == 2
        assert f"--positive CLASS, or ask for the mean over classes, --metrics macro-{name}" in (
            " ".join(done.stderr.split())
        )
    y, S, _, _ = scored(road.head, road.test)
    found = afltool.evaluate(road.head, road.test, metrics="sensitivity,auc", positive="2")
    assert found["metrics"]["auc"]["positive"] == "2"
    assert found["metrics"]["auc"]["value"] == pytest.approx(roc_auc_score(y == 2, S[:, 2]))
    assert found["metrics"]["sensitivity"]["value"] == pytest.approx(found["per_class"]["2"])


def test_figures_of_an_older_file_do_not_guess_their_class(tumours, tmp_path):
    head, test = tumours
    found = afltool.evaluate(head, test, metrics="sensitivity,auc", samples=0)
    for one in found["metrics"].values():
        del one["positive"]
    (tmp_path / "old.json").write_text(json.dumps(found))
    afltool.export(head, tmp_path / "h.onnx", card=tmp_path / "c.md", metrics=tmp_path / "old.json")
    assert "| sensitivity (positive class not named) |" in (tmp_path / "c.md").read_text()


def calibration_error(y, P):
    """The expected calibration error from scikit-learn's calibration curve."""
    sure, right = P.max(axis=1), P.argmax(axis=1) == y
    share, confidence = calibration_curve(right, sure, n_bins=15)
    filled = np.histogram(sure, bins=np.linspace(0, 1, 16))[0]
    return np.average(np.abs(share - confidence), weights=filled[filled > 0])


def test_todays_keys_stay_without_more_figures(road, cli):
    """Each class has Wilson's interval of its recall, in the table, too."""
    plain = afltool.evaluate(road.head, road.test)
    keys = {"top1", "n", "per_class", "per_class_intervals", "confusion", "head", "features"}
    assert set(plain) == keys
    shown = cli("evaluate", road.head, road.test).stdout
    for k, (low, high) in enumerate(plain["per_class_intervals"].values()):
        of = binomtest(plain["confusion"][k][k], sum(plain["confusion"][k])).proportion_ci(
            method="wilson"
        )
        assert (low, high) == pytest.approx((of.low, of.high), abs=1e-12)
        assert f"{100 * of.low:.1f}–{100 * of.high:.1f}" in shown
    more = afltool.evaluate(road.head, road.test, metrics="f1", samples=10)
    assert {k: more[k] for k in plain} == plain


def test_no_figure_is_cut_on_a_narrow_terminal(road, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    shown = cli("evaluate", road.head, road.test).stdout
    found = afltool.evaluate(road.head, road.test)["per_class"]
    assert all(f"{share:.2%}" in shown for share in found.values())


def test_sites_add_up_and_groups_widen_the_interval(road, sites, cli):
    done = cli(
        "evaluate", road.head, road.test, "--by", f"{sites}:site", "--group", f"{sites}:patient",
        "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert "per_class_intervals" not in found, "rows of a patient are not independent"
    assert set(found["by"]) == {"site 0", "site 1", "site 2"}
    assert sum(one["n"] for one in found["by"].values()) == found["n"]
    pooled = sum(one["n"] * one["accuracy"] for one in found["by"].values()) / found["n"]
    assert pooled == pytest.approx(found["top1"])
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(found["top1"])
    shown = cli("evaluate", road.head, road.test, "--by", f"{sites}:site").stdout
    assert "site 1" in shown
    assert "95 %" in shown


def test_two_heads_on_the_same_rows(road, weaker):
    found = afltool.evaluate(road.head, road.test, against=weaker)["against"]
    back = afltool.evaluate(weaker, road.test, against=road.head)["against"]
    assert (found["only_this"], found["only_other"]) == (back["only_other"], back["only_this"])
    one, other = afltool.evaluate(road.head, road.test), afltool.evaluate(weaker, road.test)
    difference = round((one["top1"] - other["top1"]) * one["n"])
    assert found["only_this"] - found["only_other"] == difference
    assert 0 <= found["p_value"] <= 1


def test_wrong_rows_are_written_with_their_scores(road, weaker, tmp_path, cli):
    place = tmp_path / "wrong.csv"
    found = json.loads(cli("evaluate", weaker, road.test, "--errors", place, "--json").stdout)
    lines = list(csv.DictReader(place.read_text().splitlines()))
    assert len(lines) == round((1 - found["top1"]) * found["n"]) > 0
    y, S, _, ids = scored(weaker, road.test)
    by_id = {line["row"]: line for line in lines}
    for name, line in by_id.items():
        k = ids.index(name)
        assert line["true"] == str(y[k]) != line["predicted"]
        assert float(line["score"]) == pytest.approx(S[k].max())
        assert float(line["score_of_true"]) == pytest.approx(S[k, y[k]])
    again = cli("evaluate", road.head, road.test, "--errors", place)
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def test_a_wrong_row_is_what_the_counts_say_where_probabilities_are_equal():
    """The highest score is predicted everywhere, also where softmax rounds two to one value."""
    S = np.array([[799.0, 800.0], [0.0, 1e-17], [1e-17, 0.0], [0.0, 0.0]])
    y = np.array([0, 0, 0, 0])
    P = scipy.special.softmax(S, axis=1)
    assert (P[:3, 0] == P[:3, 1]).any(), "the premise: equal probabilities of unequal scores"
    kept, (counted, predicted) = Scored.of(S, P, y), score_metrics(S, y)
    assert kept.predicted.tolist() == [1, 1, 0, 0]
    assert counted.n - counted.tally.right.sum() == (~kept.right).sum() == 2
    assert predicted.tolist() == kept.predicted.tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metrics", "top7"], "balanced-accuracy"),
        (["--metrics", "log-loss"], "probabilities"),
        (["--metrics", "auc", "--positive", "cat"], "found 'cat'"),
        (["--metrics", "f1", "--positive", "1"], "auc, sensitivity, specificity"),
        (["--positive", "1"], "auc, sensitivity, specificity"),
        (["--by", "sites.csv"], "TABLE:COLUMN"),
        (["--by", "absent.csv:site"], "absent.csv"),
        (["--errors", "wrong.xlsx"], ".parquet"),
    ],
)
def test_what_cannot_be_answered_is_refused(road, cli, options, said):
    done = cli("evaluate", road.head, road.test, *options)
    assert done.exit_code in (2, 3)
    assert said in done.stderr


def test_a_table_without_a_place_is_refused_before_the_work(road, tmp_path, cli):
    (tmp_path / "wrong.csv").mkdir()
    (tmp_path / "h.h5").write_text("who reads this complains")
    done = cli("evaluate", tmp_path / "h.h5", road.test, "--errors", tmp_path / "wrong.csv")
    assert done.exit_code == 3
    assert "it is a folder" in done.stderr


def test_a_table_that_lacks_rows_is_refused(road, sites, cli):
    short = sites.with_name("short.csv")
    short.write_text("\n".join(sites.read_text().splitlines()[:-1]) + "\n")
    done = cli("evaluate", road.head, road.test, "--by", f"{short}:site")
    assert done.exit_code == 4
    assert "missing: 1" in done.stderr


# ---------------------------------------------------------------- pictures of it


@pytest.fixture(scope="module")
def measured(road, softmax, tmp_path_factory):
    """What evaluate wrote of a head with probabilities."""
    found = afltool.evaluate(softmax, road.test, metrics="auc,ece", samples=0)
    place = tmp_path_factory.mktemp("measured") / "metrics.json"
    place.write_text(json.dumps(found))
    return place


@pytest.mark.parametrize(
    ("picture", "options"),
    [("confusion", []), ("reliability", []), ("roc", []), ("roc", ["--positive", "2"])],
)
def test_pictures_of_an_evaluation(measured, tmp_path, cli, picture, options):
    out = tmp_path / "picture.png"
    done = cli("plot", picture, measured, *options, "-o", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    assert plt_image.imread(out)[..., :3].std() > 0.05  # something is drawn
    assert cli("plot", picture, measured, *options, "-o", out).exit_code == 0, "equal bytes"


def test_what_a_picture_draws_is_what_was_measured(measured, tmp_path):
    """The texts of the SVG hold the figures, and each bin and curve has its line."""
    found = json.loads(measured.read_text())
    roc = afltool.roc_picture(measured, tmp_path / "roc.svg").read_text()
    for name, one in found["roc"].items():
        assert f"<!-- {name}: {one['auc']:.4f} -->" in roc
    sure = afltool.reliability_picture(measured, tmp_path / "sure.svg").read_text()
    assert f"calibration error {found['metrics']['ece']['value']:.4f}" in sure


@pytest.mark.parametrize("classes", [2, 3, 7, 8, 100])
def test_roc_curves_of_any_number_of_classes(tmp_path, classes):
    rng = np.random.default_rng(classes)
    curves = {f"class $ {k} " + "x" * k: {**one_curve(rng), "auc": k / 100} for k in range(classes)}
    curves["absent"] = {"false_positive": [], "true_positive": [], "auc": None}
    drawn = plot_roc(curves, tmp_path / "roc.svg", "many").read_text()
    assert (f"the 7 smallest of {classes + 1}" in drawn) == (classes > 6)
    plot_roc(curves, tmp_path / "roc.png", "many")


def one_curve(rng):
    """A curve from (0, 0) to (1, 1) that never falls."""
    return {
        name: [0.0, *np.sort(rng.random(20)), 1.0] for name in ("false_positive", "true_positive")
    }


def test_the_second_of_two_classes_is_drawn_and_empty_bins_stay_empty(measured, tmp_path):
    found = json.loads(measured.read_text())
    two = {k: found["roc"][k] for k in ("0", "1")}
    found |= {"roc": two, "confusion": [[1, 0], [0, 1]], "per_class": {"0": 1.0, "1": 1.0}}
    found["reliability"]["accuracy"][0] = found["reliability"]["confidence"][0] = None
    place = tmp_path / "two.json"
    place.write_text(json.dumps(found))
    drawn = afltool.roc_picture(place, tmp_path / "roc.svg").read_text()
    assert "1 against 0" in drawn
    assert "<!-- 0: " not in drawn
    afltool.reliability_picture(place, tmp_path / "sure.png")


@pytest.mark.parametrize(
    ("wrong", "picture", "error"),
    [
        ({"roc": None}, "roc", CorruptFileError),
        ({"roc": {"0": {"false_positive": [0], "true_positive": [0, 1], "auc": 1}}}, "roc",
         CorruptFileError),
        ({"metrics": 3}, "roc", CorruptFileError),
        ({"reliability": {"weight": [1], "confidence": ["x"], "accuracy": [1]}}, "reliability",
         CorruptFileError),
        ({"confusion": [[1]]}, "reliability", CorruptFileError),
        ("roc", "roc", UsageError),
        ("reliability", "reliability", UsageError),
    ],
)  # fmt: skip
def test_a_file_that_is_no_evaluation_is_refused(measured, tmp_path, wrong, picture, error):
    found = json.loads(measured.read_text())
    if isinstance(wrong, str):
        del found[wrong]
    else:
        found |= wrong
    place = tmp_path / "wrong.json"
    place.write_text(json.dumps(found))
    with pytest.raises(error, match=r"wrong\.json"):
        getattr(afltool, f"{picture}_picture")(place, tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()


def test_a_class_that_is_none_is_named(measured, tmp_path):
    with pytest.raises(UsageError, match=r"0, 1, 2, 3; found '7'"):
        afltool.roc_picture(measured, tmp_path / "p.png", positive=("7",))


def test_scores_beyond_the_memory_are_refused_before_any_are_made(road, cli, free_memory):
    """The AUC of many classes keeps all scores: it took 16 GB of 20,000 classes without a word."""
    free_memory(20_000)  # of 200 rows and 4 classes 25,600 bytes
    done = cli("evaluate", road.head, road.test, "--metrics", "auc")
    assert done.exit_code == 5
    assert "the AUC of 800 scores needs about" in " ".join(done.stderr.split())
    assert cli("evaluate", road.head, road.test, "--metrics", "f1").exit_code == 0
