"""A head of many rounds over files, through the commands: stages, repeats, stale files."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from cache_damage import KINDS, damaged
from conftest import calls, forget_stop
from typer.testing import CliRunner

import afltool
from afltool import progress
from afltool.cli.app import app
from afltool.files.heads import load_head
from afltool.files.partitions import load_partition
from afltool.heads.deepafl.layers import Layers
from afltool.options.evaluation import EvaluateOptions
from afltool.plans.here import evaluated
from afltool.plans.plan import Step
from afltool.stages.runner import Files
from afltool.stages.stage import STAGES

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
    """All rounds by the stages, one file per client; the heads after each."""
    heads = [data / "head0.h5"]
    for number in range(2 * LAYERS + 1):
        gather(data, heads[-1], folder / f"stats{number}")
        total = folder / f"total{number}.h5"
        command("aggregate", folder / f"stats{number}", "-o", total)
        after = folder / f"head{number + 1}.h5"
        command("solve", total, "--head", heads[-1], "-o", after)
        heads.append(after)
    return heads


@pytest.fixture(scope="module")
def heads(data, tmp_path_factory):
    return by_hand(data, tmp_path_factory.mktemp("by-hand"))


def test_every_head_file_names_its_next_phase(heads):
    assert [afltool.info(h)["phase"] for h in heads] == [*PHASES, None]


def test_run_is_all_of_it(data, heads, tmp_path):
    words = [
        "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
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
        total = tmp_path / f"{head.stem}.h5"
        done = command("solve", total, "--head", head, "-o", tmp_path / f"{head.stem}-h.h5")
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
    done = command("solve", tmp_path / "t.h5", "-o", tmp_path / "h.h5", code=3)
    assert "the file of this head is needed" in done.stderr
    command("solve", tmp_path / "t.h5", "--head", heads[1], "-o", tmp_path / "h.h5")
    words = "solve", tmp_path / "t.h5", "--head", heads[1], "--ridge", "2"
    done = command(*words, "-o", tmp_path / "x.h5", code=2)
    assert "fixes --ridge" in done.stderr


@pytest.mark.parametrize("kind", ["consistent", "inconsistent"])
def test_partial_participation_draws_clients_for_each_layer(data, tmp_path, kind):
    words = [
        "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "deepafl", "--layers", 2, "--width", 9, "--clients", 8, "--held-out", 0.25,
        *([] if kind == "consistent" else ["--participation-kind", kind]),
        "--participation", 0.5, "-o", tmp_path / "RUN",
    ]  # fmt: skip
    command(*words)
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
    command(*words[:-3], 2, "-o", tmp_path / "RUN", code=2)


@pytest.mark.parametrize("each", [False, True])
def test_a_cache_changes_the_work_and_nothing_else(data, heads, tmp_path, each, monkeypatch):
    cache, more = tmp_path / "cache", () if each else ("--sum",)
    begin = Layers.first

    def never(self, X):
        assert not len(X)
        return begin(self, X)

    for number, head in enumerate(heads[:-1]):
        if number == 3:  # the features of the rows are not looked at any more
            monkeypatch.setattr(Layers, "first", never)
        gather(data, head, tmp_path / f"cached{number}", *more, "--cache", cache)
        assert len(list(cache.iterdir())) == 1, "one task"
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
    for path in cache.rglob("*.npz"):
        path.write_bytes(b"?")
    gather(data, heads[1], tmp_path / "d.h5", "--sum", "--cache", cache)
    gather(data, heads[1], tmp_path / "e.h5", "--sum")
    assert afltool.info(tmp_path / "d.h5")["digest"] == afltool.info(tmp_path / "e.h5")["digest"]


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_damaged_cache_is_made_again(data, heads, tmp_path, each, how):
    cache, more = tmp_path / "cache", () if each else ("--sum",)
    gather(data, heads[2], tmp_path / "before", *more, "--cache", cache)
    for path in cache.rglob("*.npz"):
        path.write_bytes(damaged(path.read_bytes(), how, random.Random(3)))
    done = gather(data, heads[3], tmp_path / "cached", *more, "--cache", cache)
    assert "computed again" in done.stderr
    gather(data, heads[3], tmp_path / "plain", *more)
    for one in sorted((tmp_path / "plain").glob("*.h5")) if each else [tmp_path / "plain"]:
        other = tmp_path / "cached" / one.name if each else tmp_path / "cached"
        assert afltool.info(one)["digest"] == afltool.info(other)["digest"]


def test_an_unfinished_cache_file_is_written_anew(data, heads, tmp_path):
    """What a killed command left is overwritten, and what follows is read as it was written."""
    cache = tmp_path / "cache"
    gather(data, heads[0], tmp_path / "a.h5", "--sum", "--cache", cache)
    *_, whole = kept = sorted(cache.rglob("*.npz"))
    whole.with_name(whole.name + ".partial").write_bytes(bytes(200_000))
    gather(data, heads[2], tmp_path / "b.h5", "--sum", "--cache", cache)
    assert sorted(cache.rglob("*.*")) == kept
    assert whole.stat().st_size < 200_000
    done = gather(data, heads[3], tmp_path / "c.h5", "--sum", "--cache", cache)
    assert "computed again" not in done.stderr


def test_a_full_disk_under_the_cache_is_an_error_and_leaves_nothing(data, heads, tmp_path):
    """A limit of the size of files stands for the disk: writes fail, and no signal comes."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
        "from afltool.cli import main; sys.exit(main())"
    )
    words = ["local-stats", data / "train.h5", "--client", "a", "--sum", "--head", heads[1],
             "-o", tmp_path / "a.h5", "--cache", tmp_path / "cache"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "no space left on the disk; free some s" in done.stderr
    assert not [p for p in (tmp_path / "cache").rglob("*.*") if p.suffix != ".npz"], "whole blocks"
    assert not (tmp_path / "a.h5").exists()


def test_a_round_solved_again_with_other_held_out_clients_leaves_nothing_up_to_date(data, tmp_path):
    """The first weights are the same; the layers that will be kept may be others."""
    clients, stats = tmp_path / "clients.h5", tmp_path / "stats"
    afltool.partition(data / "train.h5", clients, alpha=0.5, clients=8, held_out=0.25, seed=1)
    held = [k for k, apart in enumerate(load_partition(clients).held_out) if apart]

    def gathered(head, out):
        command("local-stats", data / "train.h5", "--partition", clients, "--head", head,
                "-o", out)  # fmt: skip

    gathered(data / "head0.h5", stats)
    command("aggregate", stats, "-o", tmp_path / "total.h5", "--held-out", tmp_path / "held.h5")
    command("aggregate", stats / f"client-{held[0]}.h5", "-o", tmp_path / "one.h5")
    solve = ["solve", tmp_path / "total.h5", "-o", tmp_path / "head1.h5", "--validate"]
    command(*solve, tmp_path / "held.h5")
    gathered(tmp_path / "head1.h5", tmp_path / "stats1")
    command("aggregate", tmp_path / "stats1", "-o", tmp_path / "total1.h5",
            "--held-out", tmp_path / "held1.h5")  # fmt: skip
    follow = ["solve", tmp_path / "total1.h5", "-o", tmp_path / "head2.h5", "--head"]
    command(*follow, tmp_path / "head1.h5")
    weights = load_head(tmp_path / "head1.h5")[0].arrays()["weights-0"]
    command(*solve, tmp_path / "one.h5", "--overwrite")
    assert np.array_equal(weights, load_head(tmp_path / "head1.h5")[0].arrays()["weights-0"])
    done = command(*follow, tmp_path / "head1.h5", code=4)
    assert "was gathered for another head" in done.stderr
    again = command("local-stats", data / "train.h5", "--partition", clients, "--head",
                    tmp_path / "head1.h5", "-o", tmp_path / "stats1", code=2)  # fmt: skip
    assert "was made differently" in again.stderr


def test_the_rounds_are_a_table_and_json(data, heads):
    shown = command("info", heads[-1], "--all").stdout
    assert "rounds (error: squared" in shown
    assert "weights-2" in shown
    rounds = json.loads(command("info", heads[-1], "--json").stdout)["report"]["phases"]
    assert [r["phase"] for r in rounds] == PHASES
    assert all(r["upload_bytes"] > 0 and r["solve_seconds"] >= 0 for r in rounds)


def test_held_out_clients_choose_the_ridge_of_each_layer(data, tmp_path):
    words = [
        "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
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


# ---------------------------------------------------------------- what each round brought


def test_each_round_is_what_a_head_of_fewer_layers_says(data, heads, tmp_path):
    found = json.loads(
        command("evaluate", heads[-1], data / "test.h5", "--each-round", "--json").stdout
    )
    assert [one["phase"] for one in found["rounds"]] == PHASES
    told = {one["phase"]: one["top1"] for one in found["rounds"] if "top1" in one}
    for layers in range(LAYERS + 1):
        run = tmp_path / f"run{layers}"
        command(
            "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
            "--head", "deepafl", "--layers", layers, "--width", WIDTH, "--clients", 8, "-o", run,
        )  # fmt: skip
        few = json.loads((run / "summary.json").read_text())
        assert told[f"weights-{layers}"] == few["top1"]
    assert found["top1"] == told["weights-2"]
    assert [one.get("kept") for one in found["rounds"]] == [False, None, False, None, True]
    plain = json.loads(command("evaluate", heads[-1], data / "test.h5", "--json").stdout)
    assert plain == {k: v for k, v in found.items() if k != "rounds"}


def test_a_head_that_is_not_solved_can_be_asked_for_its_rounds(data, heads):
    words = ("evaluate", heads[2], data / "test.h5")
    found = json.loads(command(*words, "--each-round", "--json").stdout)
    assert [one["phase"] for one in found["rounds"]] == PHASES[:2]
    assert found["top1"] == found["rounds"][0]["top1"]
    done = command("evaluate", heads[0], data / "test.h5", "--each-round", code=2)
    assert "not solved yet" in done.stderr


@pytest.fixture(scope="module")
def each_round(data, tmp_path_factory):
    """A run that looks at every round, with held-out clients that choose the layers."""
    folder = tmp_path_factory.mktemp("each") / "RUN"
    done = command(
        "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
        "--head", "deepafl", "--layers", 6, "--width", WIDTH, "--clients", 8, "--ridge", "1e-3",
        "--block-ridge", "1e-4", "--held-out", 0.25, "--each-round", "-o", folder,
    )  # fmt: skip
    return folder, done


def test_a_head_is_evaluated_if_it_holds_a_round_that_is_not_known(data, each_round):
    """Held-out clients chose few layers for the last head; the one before it holds the others."""
    heads = [each_round[0] / f"05-head{'' if n == 1 else f'-{n}'}.h5" for n in range(1, 14)]
    files = {"head": heads[-1], "features": data / "test.h5", "earlier": tuple(heads[:-1])}
    found = {}

    def work():
        with Files().reading() as opened:
            step = Step(STAGES["evaluate"], EvaluateOptions(each_round=True), files)
            found.update(evaluated(step, opened))

    assert calls(work)["score"] == 2
    after = [one["phase"] for one in found["rounds"] if "top1" in one]
    assert after == [f"weights-{t}" for t in range(6)]


def test_an_evaluation_stops_when_it_is_asked_to(data, each_round):
    progress.request_stop("SIGTERM")
    try:
        with pytest.raises(afltool.errors.StoppedError, match="stopped on SIGTERM"):
            afltool.evaluate(each_round[0] / "05-head-13.h5", data / "test.h5")
    finally:
        forget_stop()


def test_a_run_tells_every_round(data, each_round):
    folder, done = each_round
    summary = json.loads((folder / "summary.json").read_text())
    rounds = summary["rounds"]
    assert [one["phase"] for one in rounds] == [one["phase"] for one in summary["bytes_per_client"]]
    for one, sent in zip(rounds, summary["bytes_per_client"], strict=True):
        assert one["clients"] == 6
        assert one["upload_bytes"] == sent["arrays_at_most"] > 0
        assert one["download_bytes"] == sent["download"] > 0
        assert one["solve_seconds"] >= 0
        assert one["gather_seconds"] >= 0
    written = pd.read_csv(folder / "06-rounds.csv")
    assert written["phase"].tolist() == [one["phase"] for one in rounds]
    assert np.allclose(written["training_mse"].dropna(), [
        one["training_mse"] for one in rounds if "training_mse" in one
    ])  # fmt: skip
    assert "rounds (error: squared" in done.stderr


def test_held_out_clients_choose_the_layers_of_a_run(data, each_round):
    folder, _ = each_round
    last = sorted(folder.glob("05-head*.h5"), key=lambda p: p.stat().st_mtime_ns)[-1]
    report = afltool.info(last)["report"]
    errors = [one["validation_mse"] for one in report["phases"] if "validation_mse" in one]
    assert len(errors) == 7
    assert report["layers"] == int(np.argmin(errors)) < 6
    assert report["layers_by"] == "held-out clients"
    head = load_head(last)[0]
    assert len(head.weights) == report["layers"] + 1
    rounds = json.loads((folder / "summary.json").read_text())["rounds"]
    kept = [one for one in rounds if one.get("kept")]
    assert [one["phase"] for one in kept] == [f"weights-{report['layers']}"]
    found = json.loads(command("evaluate", last, data / "test.h5", "--json").stdout)
    assert kept[0]["top1"] == found["top1"]
    known = [one for one in rounds if "top1" in one]
    assert len(known) == 6  # the layer beyond the last that was not kept is in no file


def test_solve_says_which_layers_are_kept(data, each_round, tmp_path):
    folder, _ = each_round
    done = command(
        "solve", folder / "04-total-13.h5", "--validate", folder / "04-held-out-13.h5",
        "--head", folder / "05-head-12.h5", "-o", tmp_path / "h.h5",
    )  # fmt: skip
    assert "layers are kept, chosen by held-out clients" in done.stderr
    assert (
        load_head(tmp_path / "h.h5")[0].digest() == load_head(folder / "05-head-13.h5")[0].digest()
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rounds_leave_as_a_table(data, heads, tmp_path, suffix):
    place = tmp_path / f"rounds{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    shown = command("evaluate", heads[-1], data / "test.h5", "--rounds", place).stdout
    assert "top-1" in shown
    frame = pd.read_csv(place) if suffix == ".csv" else pd.read_parquet(place)
    assert frame["phase"].tolist() == PHASES
    assert frame["top1"].notna().tolist() == [True, False, True, False, True]
    done = command("evaluate", heads[-1], data / "test.h5", "--rounds", tmp_path / "x.txt", code=2)
    assert ".csv or .parquet" in done.stderr


def test_rounds_of_a_run_an_evaluation_and_a_head_are_pictures(data, heads, each_round, tmp_path):
    metrics = tmp_path / "metrics.json"
    command("evaluate", heads[-1], data / "test.h5", "--each-round", "-o", metrics)
    for number, source in enumerate((each_round[0], metrics, heads[1])):
        place = tmp_path / f"{number}.png"
        command("plot", "rounds", source, "-o", place)
        assert place.read_bytes()[:4] == b"\x89PNG"


def test_what_tells_no_rounds_is_no_picture(data, tmp_path):
    place = tmp_path / "x.png"
    for source, code, said in (
        (tmp_path, 3, "summary.json: there is no such file"),
        (tmp_path / "no.json", 3, "there is no such file"),
        (data / "head0.h5", 2, "has no solved round yet"),
        (data / "train.h5", 2, "expected a head file"),
    ):
        done = command("plot", "rounds", source, "-o", place, code=code)
        assert said in done.stderr
    for text, said in (
        ("{", "is not valid JSON"),
        ("[]", "is not what afltool evaluate"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"rounds": [1]}', "is not what afltool evaluate"),
        ('{"top1": 0.5, "n": 2}', "is not what afltool evaluate"),
        (
            '{"top1": 0.5, "n": 2, "rounds": [{"phase": "a", "top1": [1]}]}',
            "is not what afltool evaluate",
        ),
    ):
        (tmp_path / "bad.json").write_text(text)
        done = command("plot", "rounds", tmp_path / "bad.json", "-o", place, code=3)
        assert said in done.stderr
    assert not place.exists()


def test_every_head_tells_its_rounds(data, tmp_path):
    """The report is the stage's work, not the head's."""
    for name, more, phases in (
        ("linear", ["--ridge", 1], ["gram"]),
        ("random-features", ["--width", 12, "--ridge", 1], ["gram"]),
        ("safle", ["--experts", 3, "--ridge", 1], ["histogram", "codes"]),
    ):
        command(
            "run", "--train-features", data / "train.h5", "--test-features", data / "test.h5",
            "--head", name, *more, "--clients", 8, "--each-round", "-o", tmp_path / name,
        )  # fmt: skip
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        rounds = summary["rounds"]
        assert [one["phase"] for one in rounds] == phases
        assert rounds[-1]["top1"] == summary["top1"]
        assert all(one["rows"] == 240 and one["clients"] == 8 for one in rounds)
        assert all(one["upload_bytes"] > 0 and one["download_bytes"] > 0 for one in rounds)
