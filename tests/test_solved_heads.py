"""solve and evaluate through the command: what they say, and what they refuse to take."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import embeddings
from damage import forge
from typer.testing import CliRunner

import afltool
from afltool.cli.app import app
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    """Features, their total and a solved head."""
    folder = tmp_path_factory.mktemp("solved")
    train = afltool.import_embeddings(embeddings(folder / "x.npz", 90), folder / "train.h5")
    total = afltool.local_stats(train, "linear", folder / "total.h5", client="a", sum=True)
    afltool.solve(total, folder / "head.h5", head_options={"ridge": 1.0})
    return folder


def test_the_ridges_that_were_tried_are_shown_only_on_request(road, tmp_path):
    words = ["solve", road / "total.h5", "-o", tmp_path / "h.h5", "--ridge", "auto", "--overwrite"]
    quiet, wordy = command(*words), command("-v", *words)
    assert "degrees_of_freedom" not in quiet.stderr
    assert "ridge" in quiet.stderr
    assert len(quiet.stderr.splitlines()) < 5
    assert wordy.stderr.count("\n") > 41
    assert "← chosen" in wordy.stderr


@pytest.mark.parametrize("intercept", [[], ["--intercept"]])
def test_features_that_say_nothing_choose_no_ridge(tmp_path, intercept):
    np.savez(tmp_path / "zero.npz", x=np.zeros((40, 6)), y=np.arange(40) % 3)
    zero = afltool.import_embeddings(tmp_path / "zero.npz", tmp_path / "zero.h5")
    command("head", "linear", *intercept, "-o", tmp_path / "head0.h5")
    total = afltool.local_stats(
        zero, tmp_path / "head0.h5", tmp_path / "total.h5", client="a", sum=True
    )
    done = command("solve", total, "-o", tmp_path / "head.h5", "--ridge", "auto", code=5)
    assert "in all 40 rows" in done.stderr
    assert "look at the features" in done.stderr
    assert not (tmp_path / "head.h5").exists()


def test_a_total_without_rows_is_refused(road, tmp_path):
    afltool.partition(road / "train.h5", tmp_path / "c.h5", scheme="iid", clients=200)
    sizes = afltool.info(tmp_path / "c.h5")["rows_per_client"]
    nobody = sizes.index(0)
    total = afltool.local_stats(
        road / "train.h5", "linear", tmp_path / "total.h5", partition=tmp_path / "c.h5",
        only=str(nobody), sum=True,
    )  # fmt: skip
    for ridge in ("auto", "1", "1e-3:1e3:5"):
        done = command("solve", total, "-o", tmp_path / "head.h5", "--ridge", ridge, code=3)
        assert "0 rows: there is nothing to solve" in done.stderr


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_head_with_numbers_that_are_none_is_refused(road, tmp_path, bad):
    head, _ = load_head(road / "head.h5")
    weights = head.arrays()["weights"].copy()
    weights[1, 1] = bad
    digest = head.restore(None, {"weights": weights}).digest()
    forged = forge(road / "head.h5", tmp_path / "h.h5", {"digest": digest}, arrays__weights=weights)
    for words in (["evaluate", forged, road / "train.h5"], ["verify", forged]):
        done = command(*words, code=3)
        assert "1 entries that are NaN or infinite" in done.stderr


def test_a_class_that_is_named_twice_is_refused(road, tmp_path):
    for kind, path in (("features", road / "train.h5"), ("head", road / "head.h5")):
        names = read_header(path)["classes"]
        forged = forge(path, tmp_path / f"{kind}.h5", {"classes": [names[0], *names[:-1]]})
        words = {"features": [road / "head.h5", forged], "head": [forged, road / "train.h5"]}[kind]
        done = command("evaluate", *words, code=3)
        assert "not a list of different entries" in done.stderr
