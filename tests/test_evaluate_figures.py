"""`evaluate --metrics, --by, --group, --against, --errors`: through files, as a user would."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss, roc_auc_score

import afltool
from afltool.heads.checks import probabilities
from afltool.linalg.fixedpoint import real
from afltool.store.features import open_features
from afltool.store.heads import load_head


@pytest.fixture(scope="module")
def weaker(road, tmp_path_factory):
    """A head that sees few rows."""
    at = tmp_path_factory.mktemp("weaker")
    stats = afltool.local_stats(
        road.train, road.head0, at / "stats", partition=road.clients, only="0"
    )
    return afltool.solve(
        afltool.aggregate([stats], at / "total.h5"), at / "head.h5", options={"ridge": 1e4}
    )


@pytest.fixture(scope="module")
def softmax(road, tmp_path_factory):
    at = tmp_path_factory.mktemp("softmax")
    head = afltool.head("softmax", at / "head-0.h5", options={"rounds": 3})
    for k in range(1, 10):
        total = afltool.local_stats(
            road.train, head, at / f"total-{k}.h5", partition=road.clients, sum=True
        )
        head = afltool.solve(total, at / f"head-{k}.h5")
        if load_head(head)[0].phase() is None:
            return head
    raise AssertionError("the softmax head never ends")


def scored(head, features):
    loaded, _ = load_head(head)
    with open_features(features) as rows:
        X = np.vstack([real(X) for _, X in rows.blocks()])
        ids = [i.decode() for i in rows.row_ids.tolist()]
        S = loaded.scores(X)
        return rows.labels.copy(), S, probabilities(loaded, S), ids


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
            "--metrics", "balanced-accuracy,f1,auc,sensitivity,specificity,log-loss,ece",
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
    each = [roc_auc_score(y == k, S[:, k]) for k in range(4)]
    assert figures["auc"]["value"] == pytest.approx(np.mean(each))
    for one in figures.values():
        assert one["low"] <= one["value"] <= one["high"]
    assert sum(found["reliability"]["weight"]) == len(y)
    assert found["roc"]["0"]["true_positive"][-1] == 1


def test_todays_keys_stay_without_more_figures(road):
    plain = afltool.evaluate(road.head, road.test)
    assert set(plain) == {"top1", "top5", "n", "per_class", "confusion", "head", "features"}
    more = afltool.evaluate(road.head, road.test, metrics="f1", samples=10)
    assert {k: more[k] for k in plain} == plain


def test_sites_add_up_and_groups_widen_the_interval(road, sites, cli):
    done = cli(
        "evaluate", road.head, road.test, "--by", f"{sites}:site", "--group", f"{sites}:patient",
        "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metrics", "top7"], "balanced-accuracy"),
        (["--metrics", "log-loss"], "probabilities"),
        (["--by", "sites.csv"], "TABLE:COLUMN"),
        (["--by", "absent.csv:site"], "absent.csv"),
        (["--errors", "wrong.xlsx"], ".parquet"),
    ],
)
def test_what_cannot_be_answered_is_refused(road, cli, options, said):
    done = cli("evaluate", road.head, road.test, *options)
    assert done.exit_code in (2, 3)
    assert said in done.stderr


def test_a_table_that_lacks_rows_is_refused(road, sites, cli):
    short = sites.with_name("short.csv")
    short.write_text("\n".join(sites.read_text().splitlines()[:-1]) + "\n")
    done = cli("evaluate", road.head, road.test, "--by", f"{short}:site")
    assert done.exit_code == 4
    assert "1 are missing" in done.stderr
