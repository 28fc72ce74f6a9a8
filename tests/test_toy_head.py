"""A head is one module and one line in the registry: nothing else in the program knows of it.

The toy is the nearest class mean: clients send the sum of each class's rows.
"""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from conftest import embeddings
from typer.testing import CliRunner

import afltool
from afltool import heads
from afltool.cli.app import app
from afltool.heads.base import Head
from afltool.store.heads import load_head

TOY = '''
from dataclasses import dataclass

import numpy as np

from afltool.heads.base import Head, add_up
from afltool.heads.carried import NOTHING
from afltool.heads.options import HeadOptions
from afltool.linalg.fixedpoint import real
from afltool.linalg.gram import gram_and_cross
from afltool.options import option


@dataclass(frozen=True, kw_only=True)
class ToyOptions(HeadOptions):
    """Options of the nearest class mean."""

    prior: bool = option(False, "larger classes reach further", at_solve=True)


class ToyHead(Head):
    """The class whose mean is nearest."""

    name = "toy"

    def __init__(self, options, sources=None):
        super().__init__(options, sources)
        self.means = self.offsets = None

    def phase(self):
        return "means" if self.means is None else None

    def _sums(self, blocks, carried):
        classes = self._bound()[1]
        return add_up({"sums": gram_and_cross(X, y, classes)[1]} for X, y in blocks), NOTHING

    def absorb(self, total, validation=None):
        dim, classes = total.arrays["sums"].shape
        solved = self.bind(dim, classes)
        scale = 2.0 ** -total.context.space["fraction_bits"]
        solved.means = scale * total.arrays["sums"] / np.maximum(total.class_counts, 1)
        share = (total.class_counts + 1) / (total.rows + classes)
        solved.offsets = np.log(share) * self.options.prior - 0.5 * (solved.means**2).sum(axis=0)
        return solved

    def scores(self, X):
        return real(X) @ self.means + self.offsets

    def arrays(self):
        return {} if self.means is None else {"means": self.means, "offsets": self.offsets}

    def restore(self, phase, arrays):
        head = ToyHead(self.options)
        head.means, head.offsets = arrays.get("means"), arrays.get("offsets")
        return head


OPTIONS, HEAD = ToyOptions, ToyHead
'''


@pytest.fixture
def toy(monkeypatch):
    module = ModuleType("toy_of_a_test")
    monkeypatch.setitem(sys.modules, "toy_of_a_test", module)
    exec(compile(TOY, "toy_of_a_test", "exec"), module.__dict__)  # the test's own text
    monkeypatch.setitem(heads.HEADS, "toy", "toy_of_a_test")  # the one line
    return module


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


def test_a_toy_head_takes_the_whole_road(toy, tmp_path):
    train = afltool.import_embeddings(embeddings(tmp_path / "a.npz", 400), tmp_path / "train.h5")
    test = afltool.import_embeddings(embeddings(tmp_path / "b.npz", 100), tmp_path / "test.h5")
    afltool.partition(train, tmp_path / "clients.h5", scheme="dirichlet", alpha=0.1, clients=7)
    head0 = afltool.head("toy", tmp_path / "head0.h5")
    command("local-stats", train, "--partition", tmp_path / "clients.h5", "--head", head0,
            "-o", tmp_path / "stats")  # fmt: skip
    command("aggregate", tmp_path / "stats", "-o", tmp_path / "total.h5")
    whole = afltool.local_stats(train, head0, tmp_path / "whole.h5", client="all", sum=True)
    assert afltool.info(tmp_path / "total.h5")["digest"] == afltool.info(whole)["digest"]
    command("solve", tmp_path / "total.h5", "-o", tmp_path / "head.h5")
    command("verify", tmp_path / "head.h5", tmp_path / "total.h5")
    found = afltool.evaluate(tmp_path / "head.h5", test)
    solved, header = load_head(tmp_path / "head.h5")
    assert isinstance(solved, toy.HEAD)
    assert header["name"] == "toy"
    assert found["top1"] > 0.5
    assert found["n"] == 100


def test_its_options_are_checked_as_those_of_any_head(toy, tmp_path):
    with pytest.raises(afltool.errors.UsageError, match="--prior takes true or false"):
        afltool.head("toy", tmp_path / "h.h5", options={"prior": 3})
    with pytest.raises(afltool.errors.UsageError, match="the head 'toy' has no option 'ridge'"):
        afltool.head("toy", tmp_path / "h.h5", options={"ridge": 1.0})


def test_a_run_takes_a_toy_head_too(toy, tmp_path):
    train = afltool.import_embeddings(embeddings(tmp_path / "a.npz", 200), tmp_path / "train.h5")
    test = afltool.import_embeddings(embeddings(tmp_path / "b.npz", 50), tmp_path / "test.h5")
    words = ["run", "--train-features", train, "--test-features", test, "--head", "toy"]
    command(*words, "--clients", 5, "--alpha", 0.5, "-o", tmp_path / "RUN")
    assert afltool.info(tmp_path / "RUN" / "05-head.h5")["name"] == "toy"


def test_the_interface_has_ten_public_methods():
    public = {
        name for name in vars(Head) if not name.startswith("_") and callable(vars(Head)[name])
    }
    assert public == {
        "phase", "gather", "absorb", "scores", "round_scores",
        "bind", "shapes", "arrays", "restore", "digest",
    }  # fmt: skip


def test_no_head_derives_from_another():
    for name in heads.HEADS:
        assert heads.head_class(name).__bases__ == (Head,), name


def test_scores_after_the_last_round_are_the_heads(toy):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    head = heads.make_head("linear", {"ridge": 1.0}).bind(4, 3)
    head = head.absorb(head.gather([(X, y)])[0])
    ((name, scores),) = head.round_scores(X)
    assert name == "last"
    assert np.array_equal(scores, head.scores(X))
