"""The command `baseline` through files: heads that evaluate, the same bits, clear refusals."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from conftest import embeddings

import afltool
from afltool.errors import UsageError
from afltool.lab.baselines import METHODS, make_settings

QUICK = {"fedlpa": ["--epochs", "3"], "fedfisher": ["--epochs", "3"], "fedgen": ["--noise", "4"]}


def arguments(road, name, out, *more, partition=None):
    where = ["--partition", partition or road.clients, "--test", road.test, "-o", out]
    rounds = [] if name in ("fedlpa", "fedfisher") else ["--rounds", "5"]
    return ["baseline", name, road.train, *where, *rounds, *QUICK.get(name, []), *more]


def digest(out):
    return afltool.info(out / "head.h5")["digest"]


def summary(out):
    return json.loads((out / "summary.json").read_text())


@pytest.fixture(scope="module")
def held_out(road):
    """A partition of the road's rows that keeps some clients for validation."""
    place = road.folder / "held-out.h5"
    return afltool.partition(road.train, place, alpha=0.5, clients=6, held_out=0.3)


# ------------------------------------------------------------ what it leaves


@pytest.mark.parametrize("name", METHODS)
def test_every_method_leaves_a_head_that_evaluate_reads(name, road, tmp_path, cli):
    out = tmp_path / "run"
    done = cli(*arguments(road, name, out))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(out)
    found = summary(out)
    told = afltool.evaluate(out / "head.h5", road.test)
    if name != "local":
        assert told["top1"] == pytest.approx(found["top1"], abs=0.006)
    assert found["top1"] > 0.5
    assert sorted(p.name for p in out.iterdir()) == ["head.h5", "rounds.csv", "summary.json"]
    assert found["head_digest"] == digest(out)
    files = {"train": road.train, "test": road.test, "partition": road.clients}
    inputs = {k: afltool.info(path)["digest"] for k, path in files.items()}
    assert found["digests"] == {**inputs, "head": digest(out)}
    assert found["partition"]["alpha"] == 0.5
    afltool.verify(out / "head.h5")


def test_rounds_are_told_as_table_json_and_picture(road, tmp_path, cli):
    out = tmp_path / "run"
    done = cli(*arguments(road, "fedavg", out, "--every", "2"))
    assert "last round" in done.stderr
    table = pd.read_csv(out / "rounds.csv")
    rounds = summary(out)["rounds"]
    assert list(table.phase) == [one["phase"] for one in rounds]
    assert list(table.phase)[-1] == "round-5"
    assert [i + 1 for i, v in enumerate(table.top1) if not np.isnan(v)] == [2, 4, 5]
    assert set(table.upload_bytes) == {4 * 9 * 4}
    assert summary(out)["upload_bytes"] == 5 * 144
    assert set(summary(out)["accuracies"]) == {"last_round", "best_on_test_rows"}
    assert cli("plot", "rounds", out, "-o", tmp_path / "p.png").exit_code == 0
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_three_accuracies_and_the_head_that_held_out_clients_like(road, held_out, tmp_path, cli):
    out = tmp_path / "run"
    more = ("--lr", "0.3", "--rounds", "7")
    done = cli(*arguments(road, "fedavg", out, *more, partition=held_out))
    assert done.exit_code == 0, done.stderr
    found, rounds = summary(out)["accuracies"], summary(out)["rounds"]
    assert found["last_round"]["top1"] == rounds[-1]["top1"]
    best = max(rounds, key=lambda one: one["held_out_top1"])
    assert found["best_by_held_out_clients"]["top1"] == best["top1"]
    first = rounds.index(best) + 1
    assert found["best_by_held_out_clients"]["round"] == first < len(rounds), "of equal ones"
    assert found["best_on_test_rows"]["top1"] == max(one["top1"] for one in rounds)
    assert "test rows" in found["best_on_test_rows"]["note"]
    told = afltool.evaluate(out / "head-held-out.h5", road.test)["top1"]
    assert told == pytest.approx(best["top1"], abs=0.006)


# ------------------------------------------------------------ again, elsewhere, interrupted


def test_rows_in_another_order_give_the_same_digest(road, tmp_path, cli):
    """A client's rows are taken in the order of their ids, however the file has them."""
    x = dict(np.load(road.embeddings))
    ids = np.char.mod("row-%04d", np.arange(600))
    order = np.random.default_rng(0).permutation(600)
    found = []
    for name, at in (("a", np.arange(600)), ("b", order)):
        np.savez(tmp_path / f"{name}.npz", x=x["x"][at], y=x["y"][at], row_ids=ids[at])
        train = afltool.import_embeddings(tmp_path / f"{name}.npz", tmp_path / f"{name}.h5")
        clients = afltool.partition(train, tmp_path / f"c-{name}.h5", scheme="iid", clients=5)
        given = {"partition": clients, "test": road.test, "settings": {"rounds": 3}}
        out = afltool.baseline("fedavg", train, tmp_path / name, **given)
        found.append((afltool.info(clients)["digest"], digest(out)))
    assert found[0] == found[1]


def test_a_file_of_somebody_else_is_not_replaced(road, held_out, tmp_path, cli):
    """It is found before any work, under each name that the folder has for results."""
    out = tmp_path / "run"
    out.mkdir()
    others = {
        "summary.json": b"{}",
        "rounds.csv": b"round,winner\n1,me\n",
        "head-held-out.h5": road.head.read_bytes(),
        "head.h5": road.head.read_bytes(),
    }
    for name, content in others.items():
        (out / name).write_bytes(content)
        done = cli(*arguments(road, "fedavg", out, partition=held_out))
        assert done.exit_code == 2, (name, done.stderr)
        assert str(out / name) in done.stderr
        assert (out / name).read_bytes() == content
        assert [p.name for p in out.iterdir()] == [name]
        (out / name).unlink()


def test_again_it_is_up_to_date_or_finished_and_another_run_is_refused(road, tmp_path, cli):
    """The summary is written last: without it a head is no finished baseline."""
    out = tmp_path / "run"
    assert cli(*arguments(road, "fedavg", out)).exit_code == 0
    before, made = summary(out), (out / "head.h5").stat().st_mtime_ns
    names = ["summary.json", "rounds.csv", "head.h5"]
    for lost in range(4):  # what a kill leaves between two files
        for name in names[:lost]:
            (out / name).unlink()
        assert cli(*arguments(road, "fedavg", out, "--threads", "2")).exit_code == 0
        assert summary(out)["digests"] == before["digests"]
        assert sorted(p.name for p in out.iterdir()) == sorted(names)
        assert lost or (out / "head.h5").stat().st_mtime_ns == made
    other = cli(*arguments(road, "fedavg", out, "--lr", "0.1"))
    assert (other.exit_code, "--overwrite" in other.stderr) == (2, True)
    assert cli(*arguments(road, "fedavg", out, "--lr", "0.1", "--overwrite")).exit_code == 0
    assert summary(out)["digests"] != before["digests"]


@pytest.mark.parametrize("stop", ["stopped_at", "killed_at"])
def test_a_stopped_run_begins_again_and_comes_to_the_same_bits(
    stop, road, held_out, tmp_path, watched
):
    settings = {"rounds": 4, "momentum": 0.9, "participation": 0.6}
    given = {"partition": held_out, "test": road.test, "settings": settings}
    whole = afltool.baseline("fedavg", road.train, tmp_path / "whole", **given)
    out = tmp_path / "parts"
    with getattr(watched, stop)(2):
        afltool.baseline("fedavg", road.train, out, **given)
    assert not list(out.glob("*"))
    afltool.baseline("fedavg", road.train, out, **given)
    assert digest(out) == digest(whole)
    held = [afltool.info(one / "head-held-out.h5")["digest"] for one in (out, whole)]
    assert held[0] == held[1]


# ------------------------------------------------------------ presets


def test_presets_are_the_papers_and_what_is_given_wins():
    found = make_settings("fedlpa", {"lr": 0.2}, "deepafl")
    assert (found.epochs, found.lr, found.momentum, found.rounds) == (50, 0.2, 0.0, 1)
    assert make_settings("fedgen", None, "afl").generator_steps == 1000
    assert make_settings("fedavg", None, "afl").rounds == 500
    with pytest.raises(UsageError, match="no option 'mu'"):
        make_settings("fedavg", {"mu": 1.0})
    with pytest.raises(UsageError, match="--preset is afl or deepafl"):
        make_settings("fedavg", None, "safle")


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(("more", "code", "said"), [
    (["--lr", "fast"], 2, "--lr"),
    (["--momentum", "1"], 2, "--momentum"),
    (["--layers", "1", "--hidden", "5"], 2, "--hidden"),
    (["--lr", "1e38"], 5, "try --lr"),
])  # fmt: skip
def test_bad_settings_are_refused_and_a_rate_that_diverges(more, code, said, road, tmp_path, cli):
    done = cli(*arguments(road, "fedavg", tmp_path / "run", *more))
    assert done.exit_code == code
    assert said in done.stderr
    assert not (tmp_path / "run" / "head.h5").exists()
    assert code == 2 or "round " in done.stderr


def test_inputs_that_do_not_belong_together_are_refused(road, tmp_path, cli):
    other = afltool.import_embeddings(embeddings(tmp_path / "o.npz", 300), tmp_path / "o.h5")
    dealt = afltool.partition(other, tmp_path / "c.h5", scheme="iid", clients=3)
    done = cli(*arguments(road, "fedavg", tmp_path / "run", partition=dealt))
    assert done.exit_code == 4
    assert "other rows" in done.stderr
    wide = afltool.import_embeddings(embeddings(tmp_path / "w.npz", 60, d=9), tmp_path / "w.h5")
    done = cli("baseline", "fedavg", road.train, "--partition", road.clients, "--test", wide,
               "-o", tmp_path / "run")  # fmt: skip
    assert done.exit_code == 4
    assert "do not fit" in done.stderr


# ------------------------------------------------------------ hidden layers


@pytest.mark.parametrize(
    "more", [["--hidden", "6"], ["--layers", "3", "--hidden", "5", "--no-bias"]]
)
def test_hidden_layers_leave_a_network_that_evaluate_reads(more, road, tmp_path, cli):
    out = tmp_path / "run"
    done = cli(*arguments(road, "moon", out, "--lr", "0.3", "--json", *more))
    assert done.exit_code == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["method"], printed["settings"]["mu"]) == ("moon", 1.0)
    assert afltool.info(out / "head.h5")["name"] == "network"
    told = afltool.evaluate(out / "head.h5", road.test)["top1"]
    assert told == pytest.approx(summary(out)["top1"], abs=0.006)
    assert told > 0.4
    afltool.verify(out / "head.h5")


def test_nobody_begins_with_a_network(road, tmp_path, cli):
    assert cli("head", "network", "-o", tmp_path / "h.h5").exit_code == 2
    done = cli("local-stats", road.train, "--partition", road.clients, "--head", "network",
               "-o", tmp_path / "s")  # fmt: skip
    assert done.exit_code in (2, 3)
    assert not list(tmp_path.glob("s/*.h5"))
