"""One decision and one table of scores: predict, evaluate, counts and the estimator agree on every
row of every head, and every figure is scikit-learn's on the scores that predict writes."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import sklearn.metrics as theirs

import afltool
from afltool.errors import InvalidDataError
from afltool.math.metrics.figures import places, predicted_classes, top_classes

NAN = float("nan")
RULES = ("nearest-mean", "lda", "fedcgs", "fed3r", "naive-bayes", "qda")
HEADS = {
    "linear": ("linear", {}),
    "random-features": ("random-features", {"width": 32}),
    "softmax": ("softmax", {"rounds": 3}),
    "safle": ("safle", {"thresholds": "range:-3:3"}),
    "deepafl": ("deepafl", {"layers": 2, "width": 16}),
    **{rule: ("discriminant", {"rule": rule}) for rule in RULES},
}
CALIBRATED = [*(f"linear by {method}" for method in ("platt", "temperature", "isotonic")),
              "softmax by platt", "lda by isotonic"]  # fmt: skip


def rows(seed, classes, n, most=None):
    """Rows of the first ``most`` classes; the last one of these has a single row."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, (most or classes) - 1, n)
    y[0] = (most or classes) - 1
    middle = 1.5 * np.random.default_rng(classes).normal(size=(classes, 5))
    return middle[y] + rng.normal(size=(n, 5)), y


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """Train and test rows of 2 and of 8 classes. The test lacks the last of 8 classes, and has
    rows of zeros, rows on the other side of zero, and one row several times."""
    folder = tmp_path_factory.mktemp("decision")
    for classes in (2, 8):
        names = np.array([f"c{k}" for k in range(classes)])
        x, y = rows(1, classes, 40 * classes)
        y[: 8 * classes] = np.arange(8 * classes) % classes  # and some with another class's label
        np.savez(folder / f"train{classes}.npz", x=x, y=names[y])
        x, y = rows(9, classes, 60, None if classes == 2 else 7)
        x[10:20], x[20:30], x[30:40] = 0, -x[20:30], x[30]
        np.savez(folder / f"test{classes}.npz", x=x, y=names[y])
        for part in ("train", "test"):
            path = folder / f"{part}{classes}"
            afltool.import_embeddings(
                f"{path}.npz", f"{path}.h5", classes=names.tolist(), dtype="float32"
            )
    return folder


def read(folder, part, classes):
    found = np.load(folder / f"{part}{classes}.npz")
    return found["x"].astype(np.float32).astype(np.float64), found["y"]


def solved(folder, name, classes):
    """The file of a head that is solved from the training rows."""
    path = folder / f"{name.replace(' ', '-')}{classes}.h5"
    if not path.exists():
        of, _, method = name.partition(" by ")
        head, options = HEADS[of]
        ridge = {} if head in ("softmax", "discriminant") else {"ridge": 1.0}
        intercept = {"intercept": False} if of == "linear" else {}
        made = afltool.AnalyticClassifier(head, options=options, **ridge, **intercept)
        x, y = read(folder, "train", classes)
        made.fit(x, y)
        if method:
            made.calibrate(x[::3], y[::3], method)
        made.save(path)
    return path


def error_of_calibration(right, confidence):
    """Guo et al.: bins ((k−1)/15, k/15], in NumPy alone."""
    at = np.clip(np.ceil(confidence * 15), 1, 15)
    gaps = [abs((right[at == k] - confidence[at == k]).sum()) for k in range(1, 16)]
    return sum(gaps) / len(right)


def references(R, y, predicted, probable):
    """Figures of scores R (n, C) as predict writes them, by scikit-learn, or else by NumPy."""
    C, macro = R.shape[1], {"average": "macro", "zero_division": NAN}
    known = [k for k in range(C) if 0 < (y == k).sum() < len(y)]
    of_others = [theirs.recall_score(y != k, predicted != k) for k in range(C)]
    of_probabilities = {
        "log-loss": theirs.log_loss(y, R, labels=range(C)),
        "ece": error_of_calibration(predicted == y, R[np.arange(len(y)), predicted]),
    } if probable else {}  # fmt: skip
    return {
        "accuracy": theirs.accuracy_score(y, predicted),
        "balanced-accuracy": np.mean([theirs.recall_score(y == k, predicted == k) for k in known]),
        "f1": theirs.f1_score(y, predicted, **macro),
        "macro-sensitivity": theirs.recall_score(y, predicted, **macro),
        "macro-specificity": np.mean(of_others),
        "auc": np.mean([theirs.roc_auc_score(y == k, R[:, k]) for k in known]),
        "average-precision": np.mean(
            [theirs.average_precision_score(y == k, R[:, k]) for k in known]
        ),
        "macro-precision": theirs.precision_score(y, predicted, **macro),
        **of_probabilities,
    }  # fmt: skip


EVALUATED = "accuracy,balanced-accuracy,f1,macro-sensitivity,macro-specificity,auc"


@pytest.mark.filterwarnings("ignore:The y_pred values do not sum to one:UserWarning")
@pytest.mark.parametrize(("name", "classes"), [
    *((name, 8) for name in (*HEADS, *CALIBRATED)),
    *((name, 2) for name in ("linear", "safle", "qda", *CALIBRATED[2:4])),
])  # fmt: skip
def test_all_commands_agree_and_figures_are_scikit_learns(at, tmp_path, name, classes):
    head, test = solved(at, name, classes), at / f"test{classes}.h5"
    names = [f"c{k}" for k in range(classes)]
    x, labels = read(at, "test", classes)
    y = np.array([names.index(one) for one in labels])
    afltool.predict(head, [test], tmp_path / "p.csv", scores=True, top=min(classes, 5))
    table = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    R = np.array([[float(row[f"score:{one}"]) for one in names] for row in table])
    told = [row["predicted"] for row in table]
    predicted = np.array([names.index(one) for one in told])
    assert np.array_equal(predicted, R.argmax(axis=1))
    assert afltool.AnalyticClassifier.load(head).predict(x).tolist() == told

    probable = " by " in name or name in ("softmax", "lda", "fedcgs", "naive-bayes", "qda")
    asked = EVALUATED + ",log-loss,ece" * probable
    found = afltool.evaluate(
        head, test, metrics=asked, bootstrap_samples=0, errors=tmp_path / "e.csv"
    )
    matrix = theirs.confusion_matrix(y, predicted, labels=range(classes))
    assert found["confusion"] == matrix.tolist()
    wrong = list(csv.DictReader((tmp_path / "e.csv").read_text().splitlines()))
    assert [row["predicted"] for row in wrong] == [
        one for one, right in zip(told, predicted == y, strict=True) if not right
    ]
    known = references(R, y, predicted, probable)
    assert found["top1"] == known["accuracy"]
    of_second = {"auc": theirs.roc_auc_score(y == 1, R[:, 1])} if classes == 2 else {}
    for one in asked.split(","):
        wanted = of_second.get(one, known[one])
        assert found["metrics"][one]["value"] == pytest.approx(wanted, abs=1e-12), one
    among = ["predicted", *(f"predicted_{k}" for k in range(2, min(classes, 5) + 1))]
    hits = [one in [row[k] for k in among] for one, row in zip(labels, table, strict=True)]
    assert found.get("top5") == (np.mean(hits) if classes > 5 else None)
    if classes > 5 and all(len(set(row)) == classes for row in R.tolist()):
        assert found["top5"] == theirs.top_k_accuracy_score(y, R, k=5, labels=range(classes))

    total = afltool.counts(head, test, tmp_path / "c", client="a")
    (counted,) = afltool.info(total)["evaluations"]
    assert counted["confusion"] == found["confusion"]
    assert counted.get("top5") == found.get("top5")
    assert str(classes) not in counted["top"]
    for one, figure in counted["metrics"].items():
        if figure["is"] == "bound":
            assert figure["least"] - 1e-9 <= known[one] <= figure["most"] + 1e-9, one
        elif one in known:
            assert figure["value"] == pytest.approx(known[one], abs=1e-12), one
    assert ("ece" in counted["metrics"]) == probable
    assert ("reliability" in counted) == probable


def test_the_first_of_equal_scores_and_what_has_none():
    S = np.array([[-2.0, -1.0, -1.0], [0.0, 0.0, 0.0], [-np.inf, -5.0, -np.inf], [1.0, 3.0, 2.0]])
    assert predicted_classes(S).tolist() == [1, 0, 1, 1]
    assert top_classes(S, 2).tolist() == [[1, 2], [0, 1], [1, 0], [1, 2]]
    y = np.array([2, 2, 0, 0])
    assert places(S, y, predicted_classes(S)).tolist() == [1, 2, 1, 2]
    for k in (1, 2):  # scikit-learn takes the last of equal scores first: so in reverse
        turned = np.where(np.isfinite(S), S, -9)[:, ::-1]
        wanted = theirs.top_k_accuracy_score(2 - y, turned, k=k, labels=range(3), normalize=False)
        assert (places(S, y, predicted_classes(S)) < k).sum() == wanted
    for wrong in ([NAN, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]):
        with pytest.raises(InvalidDataError, match="so it has no class"):
            predicted_classes(np.array([[0.0, 1.0], wrong]))


def test_a_class_without_training_rows_is_counted(at, tmp_path):
    names = [f"c{k}" for k in range(9)]
    train, test = (
        afltool.import_embeddings(at / f"{part}8.npz", tmp_path / f"{part}.h5", classes=names)
        for part in ("train", "test")
    )
    for rule in RULES:
        total = afltool.local_stats(train, "discriminant", tmp_path / f"{rule}.h5", client="a",
                                    sum=True, head_options={"rule": rule})  # fmt: skip
        head = afltool.solve(total, tmp_path / f"{rule}-head.h5")
        counts = afltool.counts(head, test, tmp_path / rule, client="a")
        (counted,) = afltool.info(counts)["evaluations"]
        found = afltool.evaluate(head, test)
        for key in ("top1", "confusion"):
            assert counted[key] == found[key], rule
        assert sum(row[8] for row in found["confusion"]) == 0


def test_two_heads_that_predict_differently_are_counted(at, cli):
    one, other = solved(at, "linear", 8), solved(at, "linear by isotonic", 8)
    x, _ = read(at, "test", 8)
    told = [afltool.AnalyticClassifier.load(head).predict(x) for head in (one, other)]
    done = cli("evaluate", other, at / "test8.h5", "--against", one, "--json")
    found = json.loads(done.stdout)["against"]["predicted_differently"]
    assert found == (told[0] != told[1]).sum() > 0
    assert f"rows predicted differently {found}" in " ".join(
        cli("evaluate", other, at / "test8.h5", "--against", one).stdout.split()
    )
