"""A head of many rounds over files, through the commands: stages, repeats, stale files, caches."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from conftest import forget_stop
from typer.testing import CliRunner

import afltool
from afltool import progress
from afltool.cli.app import app
from afltool.files.heads import load_head

PHASES = ["weights-0", "block-1", "weights-1", "block-2", "weights-2"]


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


def gather(road, head, out, *more, code=0):
    return command(
        "local-stats", road.train, "--partition", road.clients, "--head", head,
        "-o", out, *more, code=code,
    )  # fmt: skip


def run(road, out, *more, code=0):
    return command(
        "run", "--train-features", road.train, "--test-features", road.test,
        "--head", "deepafl", "--width", 9, "--clients", 8, "-o", out, *more, code=code,
    )  # fmt: skip


def digest(path):
    return afltool.info(path)["digest"]


@pytest.fixture(scope="module")
def heads(road, tmp_path_factory):
    """All rounds by the stages; the heads after each."""
    folder, how = tmp_path_factory.mktemp("by-hand"), {"layers": 2, "width": 9}
    heads = [afltool.head("deepafl", folder / "head0.h5", head_options=how)]
    for number in range(len(PHASES)):
        total = folder / f"total{number}.h5"
        afltool.local_stats(road.train, heads[-1], total, partition=road.clients, sum=True)
        heads.append(afltool.solve(total, folder / f"head{number + 1}.h5", head=heads[-1]))
    return heads


def test_a_crashed_round_repeats_alone_and_the_next_step_is_said(road, heads, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    gather(road, heads[4], whole)
    gather(road, heads[4], part, "--only", "0-3")
    (part / "client-2.h5").unlink()
    gather(road, heads[4], part)
    totals = [afltool.aggregate([name], tmp_path / f"{name.name}.h5") for name in (whole, part)]
    assert digest(totals[0]) == digest(totals[1])
    done = command("solve", totals[0], "--head", heads[4], "-o", tmp_path / "last.h5")
    assert "solve: done" in done.stderr
    gather(road, heads[-1], tmp_path / "s", code=2)  # there is nothing left to gather
    gather(road, heads[0], tmp_path / "0.h5", "--sum")
    done = command("solve", tmp_path / "0.h5", "--head", heads[0], "-o", tmp_path / "h.h5")
    assert "next phase 'block-1'" in done.stderr


def test_statistics_of_a_stale_head_are_refused(road, heads, tmp_path):
    gather(road, heads[1], tmp_path / "now", "--only", "0-3")
    other = tmp_path / "other.h5"
    command("head", "deepafl", "--layers", 2, "--width", 9, "--seed", 5, "-o", tmp_path / "o.h5")
    gather(road, tmp_path / "o.h5", tmp_path / "o0.h5", "--sum")
    command("solve", tmp_path / "o0.h5", "-o", other)
    # a round behind, one ahead, and the same round of another head
    for number, (source, said) in enumerate(
        ((heads[0], "phase"), (heads[2], "phase"), (other, "head"))
    ):
        stale = tmp_path / f"stale-{number}"
        gather(road, source, stale, "--only", "4-5")
        done = command("aggregate", tmp_path / "now", stale, "-o", tmp_path / "t.h5", code=4)
        assert said in done.stderr


def test_a_total_is_solved_only_with_its_own_head(road, heads, tmp_path):
    gather(road, heads[1], tmp_path / "t.h5", "--sum")
    solve = ["solve", tmp_path / "t.h5", "-o", tmp_path / "h.h5"]
    command(*solve, "--head", heads[2], code=4)
    assert "the file of this head is needed" in command(*solve, code=3).stderr
    done = command(*solve, "--head", heads[1], "--ridge", "2", code=2)
    assert "fixes --ridge" in done.stderr
    command(*solve, "--head", heads[1])


@pytest.mark.parametrize("kind", ["consistent", "inconsistent"])
def test_partial_participation_draws_clients_for_each_layer(road, tmp_path, kind):
    words = ["--layers", 2, "--held-out", 0.25, "--participation"]
    run(road, tmp_path / "RUN", *words, 0.5, "--participation-kind", kind)
    drawn = []
    for suffix in ("", "-2", "-3", "-4", "-5"):
        names = afltool.info(tmp_path / "RUN" / f"04-total{suffix}.h5")["client_names"]
        assert len(names) == 3  # half of the six that are not held out
        drawn.append(tuple(names))
        assert len(afltool.info(tmp_path / "RUN" / f"04-held-out{suffix}.h5")["client_names"]) == 2
    alike = kind == "consistent"
    assert (drawn[0] == drawn[1]) == alike  # W_0 and Ω_1 make the first layer,
    assert (drawn[2] == drawn[3]) == alike  # W_1 and Ω_2 the second (the paper's appendix M)
    assert len(set(drawn)) > 1
    run(road, tmp_path / "RUN", *words, 2, "--participation-kind", kind, code=2)


# ---------------------------------------------------------------- held-out clients


@pytest.fixture(scope="module")
def each_round(road, tmp_path_factory):
    """A run that looks at every round, with held-out clients that choose the layers."""
    folder = tmp_path_factory.mktemp("each") / "RUN"
    how = ("--ridge", "1e-6:1e-4:3", "--block-ridge", "1e-6", "--held-out", 0.5, "--each-round")
    return folder, run(road, folder, "--layers", 6, *how)


def test_a_run_tells_every_round_and_held_out_clients_choose_layers_and_ridges(road, each_round):
    folder, done = each_round
    summary = json.loads((folder / "summary.json").read_text())
    rounds, sent = summary["rounds"], summary["bytes_per_client"]
    for one, bytes_of in zip(rounds, sent, strict=True):
        assert (one["phase"], one["clients"]) == (bytes_of["phase"], 4)
        assert one["upload_bytes"] == bytes_of["arrays_at_most"] > 0
        assert one["download_bytes"] == bytes_of["download"] > 0
        assert min(one["solve_seconds"], one["gather_seconds"]) >= 0
    written = pd.read_csv(folder / "06-rounds.csv")
    assert written["phase"].tolist() == [one["phase"] for one in rounds]
    assert "rounds (error: squared" in done.stderr
    last = folder / "head-final.h5"
    report = afltool.info(last)["report"]
    chosen = [r for r in report["phases"] if "ridge_path" in r]
    assert [r["ridge_by"] for r in chosen] == ["held-out clients"] * 7
    for one in chosen:
        best = min(one["ridge_path"], key=lambda p: p["validation_mse"])
        assert one["ridge"] == best["ridge"]
    errors = [one["validation_mse"] for one in report["phases"] if "validation_mse" in one]
    assert report["layers"] == int(np.argmin(errors)) < 6
    assert len(errors) == 7
    assert report["layers_by"] == "held-out clients"
    assert len(load_head(last)[0].weights) == report["layers"] + 1
    (kept,) = (one for one in rounds if one.get("kept"))
    assert kept["phase"] == f"weights-{report['layers']}"
    assert kept["top1"] == afltool.evaluate(last, road.test)["top1"]
    known = [one for one in rounds if "top1" in one]
    assert len(known) == 6  # the layer beyond the last that was not kept is in no file


def test_solve_says_which_layers_are_kept_and_an_evaluation_stops_when_asked(
    road, each_round, tmp_path
):
    folder, _ = each_round
    done = command(
        "solve", folder / "04-total-13.h5", "--validate", folder / "04-held-out-13.h5",
        "--head", folder / "05-head-12.h5", "-o", tmp_path / "h.h5",
    )  # fmt: skip
    assert "layers are kept, chosen by held-out clients" in done.stderr
    assert digest(tmp_path / "h.h5") == digest(folder / "05-head-13.h5")
    progress.request_stop("SIGTERM")
    try:
        with pytest.raises(afltool.errors.StoppedError, match="stopped on SIGTERM"):
            afltool.evaluate(folder / "05-head-13.h5", road.test)
    finally:
        forget_stop()


# ---------------------------------------------------------------- what each round brought


def test_each_round_is_what_a_head_of_fewer_layers_says(road, heads, tmp_path):
    """Of a head that is not solved its rounds so far."""
    words = ("evaluate", heads[-1], road.test)
    found = json.loads(command(*words, "--each-round", "--json").stdout)
    assert [one["phase"] for one in found["rounds"]] == PHASES
    told = {one["phase"]: one["top1"] for one in found["rounds"] if "top1" in one}
    for layers in range(2):
        out = tmp_path / f"run{layers}"
        run(road, out, "--layers", layers)
        few = json.loads((out / "summary.json").read_text())
        assert told[f"weights-{layers}"] == few["top1"]
    assert found["top1"] == told["weights-2"]
    assert [one.get("kept") for one in found["rounds"]] == [False, None, False, None, True]
    plain = json.loads(command(*words, "--json").stdout)
    assert plain == {k: v for k, v in found.items() if k != "rounds"}
    command("evaluate", heads[2], road.test, code=2)
    words = ("evaluate", heads[2], road.test, "--each-round")
    early = json.loads(command(*words, "--json").stdout)
    assert [one["phase"] for one in early["rounds"]] == PHASES[:2]
    assert early["top1"] == early["rounds"][0]["top1"]
    done = command("evaluate", heads[0], road.test, "--each-round", code=2)
    assert "not solved yet" in done.stderr
