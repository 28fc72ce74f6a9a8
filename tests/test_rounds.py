"""A head of many rounds over files, through the commands: stages, repeats, stale files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import afltool
from afltool.cli.app import app
from afltool.files import load_head
from afltool.heads.deepafl import DeepAFLHead

LAYERS, WIDTH = 2, 9
PHASES = ["weights-0", "block-1", "weights-1", "block-2", "weights-2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Train and test features, a partition, and a head before its first phase."""
    folder = tmp_path_factory.mktemp("rounds")
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(3, 6))
    for name, n in (("train", 240), ("test", 90)):
        y = rng.integers(0, 3, n)
        np.savez(folder / f"{name}.npz", x=centres[y] + rng.normal(size=(n, 6)), y=y)
        afltool.import_embeddings(folder / f"{name}.npz", folder / f"{name}.h5")
    afltool.partition(folder / "train.h5", folder / "clients.h5", alpha=0.1, clients=8)
    command("head", "deepafl", "--layers", LAYERS, "--width", WIDTH, "-o", folder / "head0.h5")
    return folder


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


def gather(data, head, out, *more, code=0):
    return command(
        "local-stats", data / "train.h5", "--partition", data / "clients.h5", "--head", head,
        "-o", out, *more, code=code,
    )  # fmt: skip


def by_hand(data, folder):
    """All rounds by the stages, one file a client; the heads after each."""
    heads = [data / "head0.h5"]
    for number in range(2 * LAYERS + 1):
        gather(data, heads[-1], folder / f"stats{number}")
        total = folder / f"total{number}.h5"
        command("aggregate", folder / f"stats{number}", "-o", total)
        heads.append(folder / f"head{number + 1}.h5")
        command("solve", total, "-o", heads[-1])
    return heads


@pytest.fixture(scope="module")
def heads(data, tmp_path_factory):
    return by_hand(data, tmp_path_factory.mktemp("by-hand"))


def test_every_head_file_names_its_next_phase(heads):
    assert [afltool.info(h)["phase"] for h in heads] == [*PHASES, None]


def test_run_is_all_of_it(data, heads, tmp_path):
    words = [
        "run", "--features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "deepafl", "--layers", LAYERS, "--width", WIDTH, "--clients", 8,
        "-o", tmp_path / "RUN", "--json",
    ]  # fmt: skip
    command(*words)
    summary = json.loads((tmp_path / "RUN" / "summary.json").read_text())
    assert [u["phase"] for u in summary["bytes_per_client"]] == PHASES
    ours, theirs = (load_head(p)[0] for p in (heads[-1], tmp_path / "RUN" / "05-head-5.h5"))
    X = np.random.default_rng(0).normal(size=(50, 6))
    assert np.allclose(ours.scores(X), theirs.scores(X), rtol=1e-3, atol=1e-4)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "RUN").glob("05-*.h5")}
    command(*words)
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_a_solved_head_is_evaluated_and_gathers_no_more(data, heads, tmp_path):
    found = json.loads(command("evaluate", heads[-1], data / "test.h5", "--json").stdout)
    assert found["top1"] > 0.5
    gather(data, heads[-1], tmp_path / "s", code=2)
    command("evaluate", heads[2], data / "test.h5", code=2)


def test_a_crashed_round_repeats_alone(data, heads, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    gather(data, heads[3], whole)
    gather(data, heads[3], part, "--only", "0-3")
    (part / "client-2.h5").unlink()
    gather(data, heads[3], part)
    for name in (whole, part):
        command("aggregate", name, "-o", tmp_path / f"{name.name}.h5")
    digests = {afltool.info(tmp_path / f"{n}.h5")["digest"] for n in ("whole", "part")}
    assert len(digests) == 1


def test_the_next_step_is_said(data, heads, tmp_path):
    for head, said in ((heads[0], "next phase 'block-1'"), (heads[4], "solve: done")):
        gather(data, head, tmp_path / f"{head.stem}.h5", "--sum")
        done = command("solve", tmp_path / f"{head.stem}.h5", "-o", tmp_path / f"{head.stem}-h.h5")
        assert said in done.stderr


def test_statistics_of_a_stale_head_are_refused(data, heads, tmp_path):
    gather(data, heads[1], tmp_path / "now", "--only", "0-3")
    command("head", "deepafl", "--layers", 2, "--width", 9, "--seed", 5, "-o", tmp_path / "o.h5")
    for source, only in ((heads[0], "4-7"), (heads[2], "4-7")):  # a round behind, one ahead
        stale = tmp_path / f"stale-{source.stem}"
        gather(data, source, stale, "--only", only)
        done = command("aggregate", tmp_path / "now", stale, "-o", tmp_path / "t.h5", code=4)
        assert "phase" in done.stderr
    other = tmp_path / "other.h5"
    gather(data, tmp_path / "o.h5", tmp_path / "o0.h5", "--sum")
    command("solve", tmp_path / "o0.h5", "-o", other)
    gather(data, other, tmp_path / "stale", "--only", "4-7")
    done = command(
        "aggregate", tmp_path / "now", tmp_path / "stale", "-o", tmp_path / "t.h5", code=4
    )
    assert "head" in done.stderr


def test_a_total_is_solved_only_with_its_own_head(data, heads, tmp_path):
    gather(data, heads[1], tmp_path / "t.h5", "--sum")
    command("solve", tmp_path / "t.h5", "--head", heads[2], "-o", tmp_path / "h.h5", code=4)
    command("solve", tmp_path / "t.h5", "--head", heads[1], "-o", tmp_path / "h.h5")
    done = command("solve", tmp_path / "t.h5", "--ridge", "2", "-o", tmp_path / "x.h5", code=2)
    assert "fixes --ridge" in done.stderr


def test_random_features_are_one_round(data, tmp_path):
    command(
        "run", "--features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "random-features", "--width", 40, "--with-linear", "--clients", 8,
        "-o", tmp_path / "RUN",
    )  # fmt: skip
    summary = json.loads((tmp_path / "RUN" / "summary.json").read_text())
    assert [u["phase"] for u in summary["bytes_per_client"]] == ["gram"]
    solved = tmp_path / "again.h5"
    command("solve", tmp_path / "RUN" / "04-total.h5", "--ridge", "3", "-o", solved)
    assert afltool.info(solved)["report"]["ridge"] == 3.0


def test_partial_participation_draws_clients_for_each_layer(data, tmp_path):
    words = [
        "run", "--features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "deepafl", "--layers", 2, "--width", 9, "--clients", 8, "--held-out", 0.25,
        "--participation", 0.5, "-o", tmp_path / "RUN",
    ]  # fmt: skip
    command(*words)
    drawn = []
    for suffix in ("", "-2", "-3", "-4", "-5"):
        names = afltool.info(tmp_path / "RUN" / f"04-total{suffix}.h5")["client_names"]
        assert len(names) == 3  # half of the six that are not held out
        drawn.append(tuple(names))
        assert len(afltool.info(tmp_path / "RUN" / f"04-held-out{suffix}.h5")["client_names"]) == 2
    assert drawn[1] == drawn[2]
    assert drawn[3] == drawn[4]
    assert len(set(drawn)) > 1
    command(*words[:-3], 2, "-o", tmp_path / "RUN", code=2)


@pytest.mark.parametrize("each", [False, True])
def test_a_cache_changes_the_work_and_nothing_else(data, heads, tmp_path, each, monkeypatch):
    cache, more = tmp_path / "cache", () if each else ("--sum",)
    begin = DeepAFLHead._at

    def never(self, X, layers):
        assert not len(X)
        return begin(self, X, layers)

    for number, head in enumerate(heads[:-1]):
        if number == 3:  # the features of the rows are not looked at any more
            monkeypatch.setattr(DeepAFLHead, "_at", never)
        gather(data, head, tmp_path / f"cached{number}", *more, "--cache", cache)
        assert len(list(cache.iterdir())) == 1
    monkeypatch.undo()
    gather(data, heads[4], tmp_path / "plain", *more)
    digests = []
    for name in ("plain", "cached4"):
        found = [tmp_path / name] if not each else sorted((tmp_path / name).glob("*.h5"))
        digests.append([afltool.info(p)["digest"] for p in found])
    assert digests[0] == digests[1]


def test_a_cache_of_other_rows_or_another_head_is_not_taken(data, heads, tmp_path):
    cache = tmp_path / "cache"
    gather(data, heads[0], tmp_path / "a.h5", "--sum", "--cache", cache)
    gather(data, heads[1], tmp_path / "b.h5", "--sum", "--only", "0-3", "--cache", cache)
    gather(data, heads[1], tmp_path / "c.h5", "--sum", "--only", "0-3")
    assert afltool.info(tmp_path / "b.h5")["digest"] == afltool.info(tmp_path / "c.h5")["digest"]
    (next(cache.iterdir()) / "known.npy").write_bytes(b"?")
    gather(data, heads[1], tmp_path / "d.h5", "--sum", "--cache", cache)
    gather(data, heads[1], tmp_path / "e.h5", "--sum")
    assert afltool.info(tmp_path / "d.h5")["digest"] == afltool.info(tmp_path / "e.h5")["digest"]


def test_the_rounds_are_a_table_and_json(data, heads):
    shown = command("info", heads[-1]).stdout
    assert "phases" in shown
    assert "weights-2" in shown
    rounds = json.loads(command("info", heads[-1], "--json").stdout)["report"]["phases"]
    assert [r["phase"] for r in rounds] == PHASES
    assert all(r["upload_bytes"] > 0 and r["solve_seconds"] >= 0 for r in rounds)


def test_the_rounds_are_a_picture(data, heads, tmp_path):
    command("plot", "layers", heads[-1], "-o", tmp_path / "layers.png")
    assert (tmp_path / "layers.png").read_bytes()[:4] == b"\x89PNG"
    done = command("plot", "layers", data / "head0.h5", "-o", tmp_path / "x.png", code=2)
    assert "before its first" in done.stderr


def test_held_out_clients_choose_the_ridge_of_each_layer(data, tmp_path):
    words = [
        "run", "--features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "deepafl", "--layers", 1, "--width", 9, "--clients", 8, "--held-out", 0.25,
        "--ridge", "1e-2:1e2:5", "-o", tmp_path / "RUN",
    ]  # fmt: skip
    command(*words)
    rounds = afltool.info(tmp_path / "RUN" / "05-head-3.h5")["report"]["phases"]
    chosen = [r for r in rounds if "ridge_path" in r]
    assert [r["ridge_by"] for r in chosen] == ["held-out clients"] * 2
    for one in chosen:
        best = min(one["ridge_path"], key=lambda p: p["validation_mse"])
        assert one["ridge"] == best["ridge"]
