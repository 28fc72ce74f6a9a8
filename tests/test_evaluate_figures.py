"""`evaluate --metrics --group-by --resample-by --against --errors`: files, as a user would."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.special
from scipy.stats import binomtest
from sklearn.metrics import recall_score, roc_auc_score

import afltool
from afltool.errors import CorruptFileError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads.checks import compute_reported_scores
from afltool.math.gram import real
from afltool.math.metrics.counting import score_metrics
from afltool.math.metrics.figures import FIGURES, Scored


@pytest.fixture(scope="module")
def weaker(road, tmp_path_factory):
    """A head that sees few rows."""
    at = tmp_path_factory.mktemp("weaker")
    how = {"partition": road.clients, "only": "0", "sum": True}
    total = afltool.local_stats(road.train, road.head0, at / "total.h5", **how)
    return afltool.solve(total, at / "head.h5", head_options={"ridge": 1e4})


@pytest.fixture(scope="module")
def softmax(road, tmp_path_factory):
    config = afltool.RunConfig(
        train_features=road.train, test_features=road.test, head="softmax", clients=3,
        head_options={"rounds": 3},
    )  # fmt: skip
    return afltool.run(config, tmp_path_factory.mktemp("softmax") / "run") / "head-final.h5"


def scored(head, features):
    loaded, _ = load_head(head)
    with open_features(features) as rows:
        X = np.vstack([real(X) for _, X in rows.blocks()])
        ids = [i.decode() for i in rows.row_ids.tolist()]
        S = loaded.decision_function(X)
        return rows.labels.copy(), S, compute_reported_scores(loaded, S), ids


@pytest.fixture
def sites(road, tmp_path):
    """A table that gives every test row a site and a patient."""
    ids, k = scored(road.head, road.test)[3], np.arange(200)
    columns = {"row": ids, "site": [f"site {i % 3}" for i in k], "patient": k // 4}
    pd.DataFrame(columns).to_csv(tmp_path / "sites.csv", index=False)
    return tmp_path / "sites.csv"


def test_figures_are_those_of_the_rows_with_the_curves_that_pictures_need(road, softmax, cli):
    """What each figure is, test_metrics.py compares."""
    names = "balanced-accuracy,f1,auc,macro-sensitivity,macro-specificity,log-loss,ece"
    found = json.loads(cli("evaluate", softmax, road.test, "--json", "--metrics", names).stdout)
    y, S, P, _ = scored(softmax, road.test)
    rows = Scored.of(S, P, y)
    for name, one in found["metrics"].items():
        assert one["value"] == pytest.approx(FIGURES[name].of(rows, np.ones(len(y))))
        assert one["low"] <= one["value"] <= one["high"]
        mean = name in ("f1", "auc", "macro-sensitivity", "macro-specificity")
        assert one.get("average") == ("macro" if mean else None)
    assert list(found["metrics"]) == names.split(",")
    each = [roc_auc_score(y == k, P[:, k]) for k in range(4)]
    assert [found["roc"][str(k)]["auc"] for k in range(4)] == pytest.approx(each)
    assert found["roc"]["0"]["true_positive"][-1] == 1
    assert sum(found["reliability"]["weight"]) == len(y)
    plain = afltool.evaluate(softmax, road.test)
    keys = "top1 n per_class per_class_intervals confusion head features"
    assert set(plain) == set(keys.split())
    assert {k: found[k] for k in plain} == plain


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


@pytest.mark.parametrize("positive", [None, "malignant"])
def test_figures_of_one_class_name_it_everywhere(tumours, positive, tmp_path, cli):
    head, test = tumours
    y, S, _, _ = scored(head, test)
    named, k = positive or "benign", ["malignant", "benign"].index(positive or "benign")
    asked = ["--metrics", "sensitivity,specificity,auc,f1", "-o", tmp_path / "e.json",
             *([] if positive is None else ["--positive", positive])]  # fmt: skip
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


def test_each_class_has_wilsons_interval(road, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")  # and no figure is cut
    plain = afltool.evaluate(road.head, road.test)
    shown = cli("evaluate", road.head, road.test).stdout
    for k, (low, high) in enumerate(plain["per_class_intervals"].values()):
        of = binomtest(plain["confusion"][k][k], sum(plain["confusion"][k]))
        wilson = of.proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)
        assert f"{100 * low:.1f}–{100 * high:.1f}" in shown
    assert all(f"{share:.2%}" in shown for share in plain["per_class"].values())


def test_sites_add_up_and_groups_widen_the_interval(road, sites, cli):
    words = ["evaluate", road.head, road.test, "--group-by", f"{sites}:site"]
    found = json.loads(cli(*words, "--resample-by", f"{sites}:patient", "--json").stdout)
    assert "per_class_intervals" not in found, "rows of a patient are not independent"
    assert set(found["by"]) == {"site 0", "site 1", "site 2"}
    assert sum(one["n"] for one in found["by"].values()) == found["n"]
    pooled = sum(one["n"] * one["accuracy"] for one in found["by"].values()) / found["n"]
    assert pooled == pytest.approx(found["top1"])
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(found["top1"])
    shown = cli(*words).stdout
    assert "site 1" in shown
    assert "95 %" in shown
    own, frame = sites.with_name("own.csv"), pd.read_csv(sites, dtype=str)
    frame.assign(ward_id="w").rename(columns={"row": "scan_id"}).to_csv(own, index=False)
    assert cli("evaluate", road.head, road.test, "--group-by", f"{own}:site").stdout == shown
    frame.assign(a_id=frame["row"], b_id=frame["row"]).drop(columns="row").to_csv(own, index=False)
    done = cli("evaluate", road.head, road.test, "--group-by", f"{own}:site")
    assert "expected the row ids in a column row or path, or like id, beside site" in done.stderr
    short = sites.with_name("short.csv")
    short.write_text("\n".join(sites.read_text().splitlines()[:-1]) + "\n")
    done = cli("evaluate", road.head, road.test, "--group-by", f"{short}:site")
    assert done.exit_code == 4
    assert "missing: 1" in done.stderr


def test_wrong_rows_are_written_with_their_scores(road, weaker, tmp_path, cli):
    place = tmp_path / "wrong.csv"
    found = json.loads(cli("evaluate", weaker, road.test, "--errors", place, "--json").stdout)
    frame = pd.read_csv(place, dtype={"row": str})
    assert len(frame) == round((1 - found["top1"]) * found["n"]) > 0
    y, S, _, ids = scored(weaker, road.test)
    for line in frame.itertuples():
        k = ids.index(line.row)
        assert line.true == y[k] != line.predicted
        assert line.score == pytest.approx(S[k].max())
        assert line.score_of_true == pytest.approx(S[k, y[k]])
    again = cli("evaluate", road.head, road.test, "--errors", place)
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr
    (tmp_path / "h.h5").write_text("who reads this complains")
    (tmp_path / "folder.csv").mkdir()
    done = cli("evaluate", tmp_path / "h.h5", road.test, "--errors", tmp_path / "folder.csv")
    assert done.exit_code == 3
    assert "it is a folder" in done.stderr


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
        (["--positive", "1"], "auc, sensitivity, specificity"),
        (["--group-by", "sites.csv"], "TABLE:COLUMN"),
        (["--group-by", "absent.csv:site"], "absent.csv"),
        (["--errors", "wrong.xlsx"], ".csv"),
    ],
)
def test_what_cannot_be_answered_is_refused(road, cli, options, said):
    done = cli("evaluate", road.head, road.test, *options)
    assert done.exit_code in (2, 3)
    assert said in done.stderr


# ---------------------------------------------------------------- pictures of it


@pytest.fixture(scope="module")
def measured(road, softmax, tmp_path_factory):
    """What evaluate wrote of a head with probabilities."""
    found = afltool.evaluate(softmax, road.test, metrics="auc,ece", bootstrap_samples=0)
    place = tmp_path_factory.mktemp("measured") / "metrics.json"
    place.write_text(json.dumps(found))
    return place


@pytest.mark.parametrize("picture", ["confusion", "reliability"])
def test_what_a_picture_draws_is_what_was_measured(measured, tmp_path, cli, picture):
    """The texts of the SVG hold the figures, and each bin and curve has its line."""
    out, found = tmp_path / "picture.svg", json.loads(measured.read_text())
    done = cli("plot", picture, measured, "-o", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    assert cli("plot", picture, measured, "-o", out).exit_code == 0, "equal bytes"
    text = out.read_text()
    if picture == "reliability":
        assert f"calibration error {found['metrics']['ece']['value']:.4f}" in text
    found |= {"confusion": [[1, 0], [0, 1]]}
    found["reliability"]["accuracy"][0] = found["reliability"]["confidence"][0] = None
    (tmp_path / "two.json").write_text(json.dumps(found | {"per_class": {"0": 1.0, "1": 1.0}}))
    words = [picture, tmp_path / "two.json", "-o", tmp_path / "two.svg"]
    assert cli("plot", *words).exit_code == 0, "two classes, an empty bin"


@pytest.mark.parametrize(
    ("wrong", "picture", "error"),
    [
        ({"reliability": {"weight": [1], "confidence": ["x"], "accuracy": [1]}}, "reliability",
         CorruptFileError),
        ({"confusion": [[1]]}, "reliability", CorruptFileError),
        ({"reliability": ...}, "reliability", UsageError),
    ],
)  # fmt: skip
def test_a_file_that_is_no_evaluation_is_refused(measured, tmp_path, wrong, picture, error):
    found = {k: v for k, v in (json.loads(measured.read_text()) | wrong).items() if v is not ...}
    place = tmp_path / "wrong.json"
    place.write_text(json.dumps(found))
    with pytest.raises(error, match=r"wrong\.json"):
        afltool.plot(picture, place, tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()


def test_scores_beyond_the_memory_are_refused_before_any_are_made(road, cli, free_memory):
    """The AUC of many classes keeps all scores: it took 16 GB of 20,000 classes without a word."""
    free_memory(20_000)  # of 200 rows and 4 classes 25,600 bytes
    done = cli("evaluate", road.head, road.test, "--metrics", "auc")
    assert done.exit_code == 5
    assert "the AUC of 800 scores needs about" in " ".join(done.stderr.split())
    assert cli("evaluate", road.head, road.test, "--metrics", "f1").exit_code == 0
