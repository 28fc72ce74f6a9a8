"""`--incremental`: sums of what changed give the layers that full sums give."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import embeddings
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import sums
from rounds_of_heads import absorb, report_of
from typer.testing import CliRunner

import afltool
from afltool.cli.app import app
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.heads import make_head
from afltool.values.statistics import Client, ClientId, Sum

C, D = 4, 6


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    return np.sin(rng.normal(size=(C, D))[y] + 0.7 * rng.normal(size=(n, D))), y


def named(head, X, y, name):
    """Statistics of a client, with its name beside them."""
    one = sums(head, X, y)
    who = {ClientId(name): Client(len(y))}
    return type(one)(one.phase, one.arrays, one.class_counts, one.context, who)


def total(head, X, y, owner):
    parts = [named(head, X[owner == k], y[owner == k], f"c{k}") for k in np.unique(owner)]
    running = Sum(parts[0])
    for part in parts[1:]:
        running.add(part)
    return running.result()


def trained(X, y, owner=None, until=None, **options):
    """The head after all rounds, or before the round ``until``."""
    given = {"width": 12, "layers": 4, "compute": "float64", **options}
    head = make_head("deepafl", given).bind(D, C)
    owner = np.arange(len(y)) % 3 if owner is None else owner
    while head.phase() != until:
        one = total(head, X, y, owner)
        assert {k: a.shape for k, a in one.arrays.items()} == {
            k: spec.shape for k, spec in head.array_specs(None).items() if spec.kind == "real"
        }
        head = absorb(head, one)
    return head


def furthest(a, b):
    """Largest difference of the weights, relative to the largest weight of a layer."""
    pairs = zip(a.weights, b.weights, strict=True)
    return max(np.abs(one - other).max() / np.abs(one).max() for one, other in pairs)


@pytest.mark.parametrize(
    "options",
    [{}, {"hidden_width": 7}, {"hidden_width": 20}, {"width": 3}, {"from_phi0": True},
     {"identity_projection": True}, {"block_ridge": 0.0, "ridge": 1e-3}],
)  # fmt: skip
def test_the_layers_are_those_of_full_sums(options):
    X, y = rows()
    full, thin = trained(X, y, **options), trained(X, y, incremental=True, **options)
    assert furthest(full, thin) < 1e-8
    told = [
        [p["training_mse"] for p in report_of(head)["phases"] if "training_mse" in p]
        for head in (full, thin)
    ]
    assert told[0] == pytest.approx(told[1], rel=1e-8)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(20, 80), width=st.integers(2, 10))
@settings(max_examples=30, deadline=None)
def test_law_what_changed_adds_up_to_the_whole(seed, n, width):
    X, y = rows(n, seed)
    options = {"width": width, "layers": 2, "ridge": 0.1}
    full, thin = trained(X, y, **options), trained(X, y, incremental=True, **options)
    assert furthest(full, thin) < 1e-7


def test_float32_predicts_the_same():
    X, y = rows(2000)
    options = {"compute": "float32", "layers": 10, "width": 32, "ridge": 10.0}
    full, thin = trained(X, y, **options), trained(X, y, incremental=True, **options)
    same = full.scores(X).argmax(1) == thin.scores(X).argmax(1)
    assert same.mean() >= 0.999


def test_a_layer_sends_half_as_much():
    X, y = rows()
    sent = [
        [p["upload_bytes"] for p in report_of(trained(X, y, width=64, **more))["phases"]]
        for more in ({}, {"incremental": True})
    ]
    assert sent[1][:2] == sent[0][:2]
    assert sent[1][2] == 8 * (64 * C + C * C)
    assert sum(sent[1]) < 0.65 * sum(sent[0])


def test_what_the_server_keeps_is_not_counted_as_sent_and_goes_in_the_end():
    X, y = rows()
    head = trained(X, y, until="weights-2", incremental=True)
    kept = {"kept-gram", "kept-cross", "kept-hidden-gram", "kept-clients", "kept-class-counts"}
    assert kept <= head.arrays().keys()
    down = report_of(head)["phases"][-1]["download_bytes"]
    assert down == 8 * (12 * C + 12 * C)
    again = make_head("deepafl", head.options.as_dict()).restore("weights-2", head.arrays())
    assert again.digest() == head.digest()
    solved = trained(X, y, incremental=True)
    assert not [name for name in solved.arrays() if name.startswith("kept")]


def test_other_clients_in_a_later_round_are_refused():
    X, y = rows()
    owner = np.arange(len(y)) % 3
    for until in ("block-1", "weights-1", "block-2"):
        head = trained(X, y, until=until, incremental=True)
        with pytest.raises(MismatchError, match=r"2 clients .* first round \(3 clients, 200 rows"):
            absorb(head, total(head, X[owner > 0], y[owner > 0], owner[owner > 0]))
        with pytest.raises(MismatchError, match="begin again without --incremental"):
            absorb(head, total(head, X, y, owner + 1))  # as many rows, other names
        with pytest.raises(UsageError, match="as in the first round"):
            absorb(head, total(head, X, y, owner), total(head, X, y, owner))


def test_a_file_without_what_it_builds_on_is_refused():
    X, y = rows()
    head = trained(X, y, until="weights-2", incremental=True)
    options, arrays = head.options.as_dict(), head.arrays()
    for name in ("kept-gram", "kept-cross", "kept-hidden-gram", "kept-class-counts"):
        left = {k: a for k, a in arrays.items() if k != name}
        with pytest.raises(InvalidDataError, match=r"kept-|has no sums"):
            make_head("deepafl", options).restore("weights-2", left).bind(D, C)
        short = {**arrays, name: arrays[name][:-1]}
        with pytest.raises(InvalidDataError, match=name):
            make_head("deepafl", options).restore("weights-2", short).bind(D, C)


# ---------------------------------------------------------------- over files


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("incremental")
    for name, n in (("train", 400), ("test", 120)):
        afltool.import_embeddings(embeddings(folder / f"{name}.npz", n), folder / f"{name}.h5")
    return folder


def run(files, out, *more, code=0):
    done = command(
        "run", "--train-features", files / "train.h5", "--test-features", files / "test.h5",
        "--head", "deepafl", "--width", 16, "--layers", 4, "--clients", 8, "--alpha", 0.1,
        "--compute", "float64", "-o", out, *more, code=code,
    )  # fmt: skip
    return done if code else json.loads((out / "summary.json").read_text())


def test_a_run_chooses_as_many_layers_by_held_out_clients(files, tmp_path):
    held = ("--held-out", 0.25, "--ridge", "1e-3:1e1:5", "--each-round")
    full = run(files, tmp_path / "full", *held)
    thin = run(files, tmp_path / "thin", *held, "--incremental", "--cache", tmp_path / "cache")
    for one, other in zip(full["rounds"], thin["rounds"], strict=True):
        for name in ("validation_mse", "training_mse", "top1", "ridge"):
            assert (name in one) == (name in other)
            if name in one:
                assert one[name] == pytest.approx(other[name], rel=1e-6), (one["phase"], name)
    assert full["top1"] == thin["top1"]
    again = run(files, tmp_path / "again", *held, "--incremental")
    assert again["head_digest"] == thin["head_digest"]


def test_a_draw_of_clients_is_refused_before_the_first_round(files, tmp_path):
    done = run(files, tmp_path / "RUN", "--incremental", "--participation", 0.5, code=2)
    assert "the same clients in every round; found --participation 0.5" in done.stderr
