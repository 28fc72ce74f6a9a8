"""`run`: the whole road in one folder, from options or TOML, by a plan whose steps are commands."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers_images import write_imagefolder

import afltool
from afltool.errors import InputError, OutputExistsError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head
from afltool.runs.config import RunConfig, read_config
from afltool.runs.folder import RunFolder
from afltool.runs.plan import LINK, Step, data_steps, next_steps
from afltool.runs.slurm.jobs import Cut
from afltool.runs.slurm.states import status
from afltool.runs.step_cache import StepCache
from afltool.stages.stage import STAGES


def times(folder, pattern="0*.h5"):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(pattern)}


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture
def deep(done_run, tmp_path):
    """A copy of a run of several rounds."""
    run = done_run(head="deepafl", layers=2, width=16, each_round=True, train_accuracy=True,
                   head_seed=5, partition_seed=3)  # fmt: skip
    return shutil.copytree(run, tmp_path / "deep", copy_function=shutil.copy2)


def test_the_solved_head_has_one_name_whatever_the_number_of_rounds(done_run, deep, tmp_path):
    for run in (shutil.copytree(done_run(), tmp_path / "linear"), deep):
        digest = summary_of(run)["head_digest"]
        assert afltool.info(run / "head-final.h5")["digest"] == digest
        assert afltool.info(run / "head-final.h5")["phase"] is None
        (run / "head-final.h5").unlink()  # as in a folder of an earlier version
        assert status(run)["state"] == "done"
        before = times(run)
        afltool.run(RunConfig(**read_config(run / "run.toml")), run)
        assert afltool.info(run / "head-final.h5")["digest"] == digest
        assert before == times(run)


def test_the_folder_shows_the_road_and_what_is_done_is_kept(road, tmp_path):
    run = afltool.run(road.config(), tmp_path / "run")
    assert sorted(p.name for p in run.iterdir()) == [
        "01-features-test.h5", "01-features-train.h5", "02-clients.h5", "03-head0.h5",
        "04-total.h5", "05-head.h5", "06-confusion.csv", "06-metrics.json", "06-rounds.csv",
        "head-final.h5", "run.toml", "summary.json",
    ]  # fmt: skip
    summary = summary_of(run)
    assert summary["top1"] > 0.8
    assert summary["clients"] == 6
    assert summary["total_digest"] == afltool.info(run / "04-total.h5")["digest"]
    assert [s["stage"] for s in summary["stages"]] == [
        "features train", "features test", "partition", "head", "local-stats", "solve", "evaluate",
    ]  # fmt: skip
    before = times(run, "*.h5")
    (run / "05-head.h5").unlink()
    afltool.run(road.config(), run)
    again = times(run, "*.h5")
    assert {name for name in before if before[name] != again[name]} == {
        "05-head.h5", "head-final.h5"
    }  # fmt: skip
    more = {"separability": True, "train_accuracy": True}  # of evaluate alone
    afltool.run(road.config(**more), run)
    assert times(run) == {name: at for name, at in again.items() if name.startswith("0")}
    assert "csr" in summary_of(run)
    with pytest.raises(OutputExistsError, match=r"alpha 0\.1 → 5\.0"):
        afltool.run(road.config(alpha=5.0), run)


def test_the_summary_holds_every_option_and_where_all_comes_from(deep, road):
    found = summary_of(deep)
    options = found["options"]
    given = {"head": "deepafl", "layers": 2, "width": 16, "head_seed": 5, "partition_seed": 3}
    assert given.items() <= options.items()
    assert (options["alpha"], options["clients"], options["threads"]) == (0.1, 3, None)
    assert (options["ridge"], options["activation"]) == (1.0, "gelu"), "defaults, too"
    assert options["train_features"] == str(road.train)
    again = {k: v for k, v in options.items() if v is not None and k not in ("width",)}
    assert RunConfig(**again).partition == road.config(clients=3, partition_seed=3).partition
    last = len(found["bytes_per_client"])
    digests = {
        "train": "01-features-train.h5", "test": "01-features-test.h5",
        "head": f"05-head-{last}.h5", "partition": "02-clients.h5",
        "first_head": "03-head0.h5", "total": f"04-total-{last}.h5",
    }  # fmt: skip
    assert found["digests"] == {k: afltool.info(deep / v)["digest"] for k, v in digests.items()}
    assert found["upload_bytes"] == sum(r["upload_bytes"] for r in found["rounds"])
    assert found["seconds"] == pytest.approx(sum(s["seconds"] for s in found["stages"]), abs=0.01)
    assert all(stage["processor_seconds"] >= 0 for stage in found["stages"])
    assert found["partition"]["alpha"] == 0.1
    assert found["versions"]["afltool"] == afltool.__version__


def test_the_accuracy_on_training_rows_is_that_of_the_head_on_them(deep, done_run, road):
    found = summary_of(deep)
    last = deep / f"05-head-{len(found['bytes_per_client'])}.h5"
    alone = afltool.evaluate(last, road.train, each_round=True)
    assert found["train_top1"] == alone["top1"]
    measured = {r["phase"]: r["train_top1"] for r in found["rounds"] if "train_top1" in r}
    assert measured == {r["phase"]: r["top1"] for r in alone["rounds"] if "top1" in r}
    assert len(measured) == 3
    assert found["top1"] == afltool.evaluate(last, road.test)["top1"]
    assert "train_top1" not in summary_of(done_run())


def flipped(path):
    """A copy of a file, in its place, with a bit turned in the content of each of its arrays."""
    places = []
    with h5py.File(path) as file:
        file.visititems(lambda _, one: isinstance(one, h5py.Dataset) and places.append(one.id))
        chunks = [one.get_chunk_info(0) for one in places if one.get_num_chunks()]
    data = bytearray(path.read_bytes())
    for chunk in chunks:
        yield (
            bytes(data[: (at := chunk.byte_offset + chunk.size // 2)])
            + bytes([data[at] ^ 4])
            + bytes(data[at + 1 :])
        )


def test_a_bit_of_content_that_is_turned_in_a_finished_run_is_noticed_or_repaired(
    road, tmp_path, cli
):
    """In each array of each file, headers among them."""
    run = afltool.run(road.config(keep_clients=True, clients=2), tmp_path / "run")
    files = sorted({*run.glob("*.h5"), *run.glob("*/*.h5")})
    files = [path for path in files if path.name != "client-1.h5"]  # one client stands for all
    assert len(files) > 6
    for path in files:
        whole = path.read_bytes()
        for damaged in flipped(path):
            path.unlink()  # it may be a second name
            path.write_bytes(damaged)
            done = cli("run", run / "run.toml", "-o", run)
            intact = cli("verify", path).exit_code == 0
            assert done.exit_code == 3 or (done.exit_code == 0 and intact), (path, done.output)
            path.write_bytes(whole)
    path.write_bytes(damaged)
    afltool.run(road.config(keep_clients=True, clients=2), run, overwrite=True)
    afltool.verify(path)


# ------------------------------------------------------------ options that only solve uses


@pytest.fixture
def few(tmp_path):
    """Fewer rows than features: without a ridge they do not determine a head."""
    np.savez(tmp_path / "few.npz", x=np.random.default_rng(0).normal(size=(20, 30)),
             y=np.arange(20) % 3)  # fmt: skip
    return afltool.import_embeddings(tmp_path / "few.npz", tmp_path / "few.h5")


def of_few(few, *more):
    return ["--train-features", few, "--test-features", few, "--scheme", "iid", "--clients", 2,
            *more]  # fmt: skip


GATHERED = ("01-features-train.h5", "01-features-test.h5", "02-clients.h5", "03-head0.h5",
            "04-total.h5")  # fmt: skip


def inodes(folder):
    return [(folder / name).stat().st_ino for name in GATHERED]


def test_a_run_without_a_ridge_goes_on_with_what_is_done(few, tmp_path, cli):
    out = tmp_path / "a run"
    done = cli("run", *of_few(few, "--ridge", 0), "-o", out)
    assert done.exit_code == 5
    made = inodes(out)
    assert "--ridge auto" in done.stderr
    again = cli("run", out / "run.toml", "-o", out, "--ridge", "auto")
    assert again.exit_code == 0, again.stderr
    assert inodes(out) == made
    assert summary_of(out)["options"]["ridge"] == "auto"
    assert afltool.info(out / "05-head.h5")["report"]["ridge"] > 0
    assert status(out)["state"] == "done"
    assert "ridge = " in (out / "run.toml").read_text()
    assert cli("run", *of_few(few), "--ridge", "auto", "-o", out).exit_code == 0
    plain = tmp_path / "plain"
    assert cli("run", *of_few(few), "--ridge", "auto", "-o", plain).exit_code == 0
    same = [afltool.info(at / "05-head.h5")["digest"] for at in (out, plain)]
    assert same[0] == same[1]
    for more in (["--ridge", 0], ["--gamma", 1], ["--intercept"],
                 ["--head", "random-features", "--width", 8]):  # fmt: skip
        done = cli("run", *of_few(few), *more, "-o", out)
        assert done.exit_code == 2, more
        assert "made differently" in done.stderr


@pytest.mark.parametrize("more", [["--min-norm"], ["--ridge", 2, "--standardize"]])
def test_what_the_message_of_a_given_head_file_advises_is_taken(more, few, tmp_path, cli):
    """A head file holds its options; those that solve may change can be given beside it."""
    head = afltool.head("linear", tmp_path / "h0.h5", head_options={"ridge": 0})
    out = tmp_path / "run"
    assert cli("run", *of_few(few), "--head", head, "-o", out).exit_code == 5
    assert cli("run", *of_few(few), "--head", head, *more, "-o", out).exit_code == 0
    assert summary_of(out)["top1"] >= 0
    done = cli("run", *of_few(few), "--head", head, "--intercept", "-o", tmp_path / "other")
    assert done.exit_code == 2
    assert "fixes --intercept before its first round" in " ".join(done.stderr.split())


def test_runs_that_differ_in_what_solve_is_told_have_one_first_head_and_total(road, tmp_path):
    own = {"head": "safle", "experts": 2, "buckets": 4}
    runs = [
        afltool.run(road.config(ridge=ridge, **own), tmp_path / f"{ridge}") for ridge in (1.0, 2.0)
    ]
    found = [summary_of(run) for run in runs]
    assert [one["options"]["ridge"] for one in found] == [1.0, 2.0]
    for name in ("first_head", "total"):
        assert found[0]["digests"][name] == found[1]["digests"][name]
    assert found[0]["digests"]["head"] != found[1]["digests"]["head"]
    assert afltool.info(runs[1] / "05-head.h5")["options"]["ridge"] == 2.0
    # A later round depends on it: a mix would be a head of no command.
    with pytest.raises(OutputExistsError, match="exists and was made differently"):
        afltool.run(road.config(ridge=7.0, **own), runs[0])


def test_images_go_through_the_store_and_parts_of_them_are_joined_to_the_whole(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=3)
    given = {
        "data": f"imagefolder:{images}", "backbone": "resnet18", "weights": "random", "ridge": 1.0,
        "image_size": 16, "engine": "torch", "clients": 3,
    }  # fmt: skip
    stored = {**given, "store": tmp_path / "store"}
    run = afltool.run(RunConfig(**stored), tmp_path / "run")
    kept = list((tmp_path / "store").glob("*.h5"))
    assert len(kept) == 2
    linked = (run / "01-features-train.h5").stat().st_ino
    assert linked in {p.stat().st_ino for p in kept}
    before = {p: p.stat().st_mtime_ns for p in kept}
    afltool.run(RunConfig(**{**stored, "clients": 2}), tmp_path / "other")
    assert {p: p.stat().st_mtime_ns for p in kept} == before
    _, whole, _ = data_steps(RunConfig(**given), RunFolder(tmp_path))
    parts = Cut(whole, tmp_path / "parts", 2)
    for number in range(2):
        step = parts.step(number)
        assert step.line()[-4:-2] == ["--shard", f"{number}/2"]
        step.make()
    [joined] = parts.join_step()
    assert joined.line()[:2] == ["merge", str(tmp_path / "parts")]
    one, other = map(read_header, (run / "01-features-test.h5", joined.make().path))
    assert (one["digest"], one["recipe"]) == (other["digest"], other["recipe"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cleints = 5", r"'cleints' is no option of run"),
        ("fan-in = 3", r"'fan-in' is gone: one task adds up the sums of all parts"),
        ("clients = 'many'", r"clients should be a valid integer; found 'many'"),
        ("scheme = 'circle'", r"--scheme is iid, dirichlet, .*; found 'circle'"),
        ("[a]\nclients = 1\n[b]\nclients = 2", r"gives 'clients' more than once"),
        (
            "partition-seed = 1\npartition_seed = 2",
            r"'partition-seed' and 'partition_seed'.* twice",
        ),
        ("clients = ", r"not valid TOML"),
    ],
)
def test_a_wrong_toml_is_refused(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises((UsageError, InputError), match=message):
        RunConfig(**{"data": "digits", "backbone": "resnet18", **read_config(path)})
    with pytest.raises(UsageError, match="needs --data and --backbone"):
        RunConfig()
    with pytest.raises(UsageError, match="go together"):
        RunConfig(train_features=tmp_path)


def test_the_papers_preset_is_resolved_and_options_keep_their_order(road, tmp_path):
    """Sets of text have another order in every process: run.toml would be written anew."""
    more = {"head": "deepafl", "preset": "paper", "layers": 0, "width": 8, "gamma": 0.1}
    afltool.run(road.config(**more), tmp_path / "run")
    options = summary_of(tmp_path / "run")["options"]
    assert options["preset"] == "released-script"
    assert (options["ridge"], options["block_ridge"], options["layers"]) == (1.0, 0.05, 0)
    written = (tmp_path / "run" / "run.toml").read_text().splitlines()
    assert [line.split(" = ")[0] for line in written[-4:]] == ["preset", "layers", "width", "gamma"]


def test_a_file_that_the_run_would_write_is_not_its_input(road, tmp_path, cli):
    """By the folder that holds it; under the name of its own option it may lie there."""
    run = afltool.run(road.config(), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    options = road.words
    for more, name in (
        (["--head", run / "05-head.h5"], "--head"),
        (["--partition", run / ".." / "run" / "04-total.h5"], "--partition"),
        (["--scheme", "file", "--table", run / "06-confusion.csv"], "--table"),
    ):
        for command in ("run", "slurm"):
            done = cli(command, *options, *more, "-o", run)
            assert done.exit_code == 2, (more, done.stderr)
            assert f"{name} {more[-1]} is a file that this command writes" in done.stderr
    with pytest.raises(UsageError, match=r"--test .* writes"):
        afltool.baseline("fedavg", road.train, run, partition=run / "02-clients.h5",
                         test=run / "summary.json")  # fmt: skip
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before
    own = ["--train-features", run / "01-features-train.h5", "--test-features",
           run / "01-features-test.h5", "--partition", run / "02-clients.h5"]  # fmt: skip
    assert cli("run", *own, "-o", run).exit_code == 0


def test_given_files_may_be_relative_links(road, tmp_path, cli, monkeypatch):
    """The folder gets names of the files, not of the links, which lead to nothing from there."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "study.toml").write_text(
        'train-features = "train.h5"\ntest-features = "test.h5"\npartition = "clients.h5"\n'
        'head = ["linear"]\n'
    )
    files = {"train.h5": road.train, "test.h5": road.test, "clients.h5": road.clients}
    for name, path in files.items():
        (tmp_path / "sub" / name).symlink_to(path)
        (tmp_path / name).symlink_to(Path("sub") / name)  # a link to a link, both relative or not
    monkeypatch.chdir(tmp_path)
    given = ["--train-features", "train.h5", "--test-features", "test.h5", "--partition",
             "clients.h5"]  # fmt: skip
    assert cli("run", *given, "-o", "deep/er/run").exit_code == 0
    assert cli("slurm", *given, "-o", "jobs/run").exit_code == 0
    assert cli("study", "study.toml", "-o", "deep/study").exit_code == 0
    cell = next(Path("deep/study/cells").iterdir())
    for folder in (Path("deep/er/run"), Path("jobs/run"), cell):
        for name, path in (("01-features-train.h5", road.train), ("02-clients.h5", road.clients)):
            assert not (folder / name).is_symlink()
            assert (folder / name).samefile(path)


@pytest.mark.parametrize(
    "name",
    ["06-metrics.json", "06-rounds.csv", "run.toml", "head-final.h5", "01-features-train.h5"],
)
def test_a_file_of_somebody_else_is_not_replaced(name, road, tmp_path, cli):
    """It is found before any work; --overwrite replaces it."""
    run, other = tmp_path / "run", {"head-final.h5": road.head, "01-features-train.h5": road.test}
    run.mkdir()
    data = other[name].read_bytes() if name in other else b"alpha = 3.0\n# round,winner\n"
    (run / name).write_bytes(data)
    options = [*road.words, "--clients", 4]
    for command in ("run", "slurm"):
        done = cli(command, *options, "-o", run)
        assert done.exit_code == 2, done.stderr
        assert str(run / name) in done.stderr
        assert (run / name).read_bytes() == data
        assert [p.name for p in run.rglob("*")] == [name]
    assert cli("run", *options, "-o", run, "--overwrite").exit_code == 0
    assert (run / name).read_bytes() != data


def test_the_options_of_a_run_keep_the_comments_of_their_owner(road, tmp_path, cli):
    run, place = tmp_path / "run", tmp_path / "run" / "run.toml"
    afltool.run(road.config(), run)
    mine = "# why alpha: see the log book\n" + place.read_text()
    place.write_text(mine)
    for command in (["run", place], ["run", place, "--overwrite"], ["slurm", place]):
        assert cli(*command, "-o", run).exit_code == 0
        assert place.read_text() == mine
    done = cli("run", place, "--memory", "2GB", "-o", run)
    assert done.exit_code == 2
    assert "with comments of its owner" in done.stderr
    assert place.read_text() == mine
    place.write_text(mine.partition("\n")[2])  # nobody's comments: the run's own file
    assert cli("run", place, "--memory", "2GB", "-o", run).exit_code == 0
    assert "2GB" in place.read_text()


# ------------------------------------------------------------ the plan: its steps are commands


CONFIGS = {
    "linear": {"ridge": 0.5, "held_out": 0.3},
    "kept": {"keep_clients": True, "train_accuracy": True},
    "rounds": {"head": "softmax", "rounds": 2, "each_round": True},
    "drawn": {"head": "deepafl", "layers": 1, "width": 8, "participation": 0.5},
}


def of_run(folder):
    """Digests of the files of a run, and its figures without the paths."""
    run = {p.name: read_header(p)["digest"] for p in sorted(folder.glob("0[2-5]-*.h5"))}
    return run, json.loads((folder / "06-metrics.json").read_text())["top1"]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_commands_of_its_steps_one_after_another_make_what_run_makes(road, cli, tmp_path, name):
    one = road.config(clients=4, scheme="iid", **CONFIGS[name])
    folder = RunFolder(tmp_path / "steps")
    folder.root.mkdir()
    for steps in next_steps(one, folder, lambda head: load_head(head).head.phase()):
        for step in steps:
            if step.stage.name == LINK:
                StepCache().carry_out(step)
            else:
                done = cli(*step.line())
                assert done.exit_code == 0, done.stderr
    afltool.run(one, tmp_path / "run")
    ours, theirs = of_run(folder.root), of_run(tmp_path / "run")
    assert ours == theirs
    assert len(ours[0]) >= 4


@pytest.mark.parametrize("held_out", [0, 0.4])
def test_parts_of_statistics_are_joined_to_the_whole(held_out, road, tmp_path):
    clients = tmp_path / "clients.h5"
    afltool.partition(road.train, clients, scheme="iid", clients=9, held_out=held_out)
    inputs = {"features": road.train, "partition": clients, "head": road.head0}
    stage, held = STAGES["local-stats"], tmp_path / "held.h5" if held_out else None
    options = stage.options(sum=True, held_out=held)
    whole = Step(stage, options, inputs, tmp_path / "whole.h5")
    parts = Cut(whole, tmp_path / "parts", 5)
    for step in (*map(parts.step, range(5)), whole):
        step.make()
    there = [read_header(path) for path in whole.results()]
    assert len(there) == 1 + bool(held_out)
    again = [replace(step, out=tmp_path / f"{k}.h5") for k, step in enumerate(parts.join_step())]
    for one, step in zip(there, again, strict=True):
        other = read_header(step.make(overwrite=True).path)
        assert (one["digest"], one["recipe"]) == (other["digest"], other["recipe"]), (
            "so the one is up to date where the other is wanted"
        )
