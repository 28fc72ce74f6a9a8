"""The plan of a run: its steps are commands, parts make the whole, equal steps are made once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import embeddings

import afltool
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head
from afltool.options.base import fields_of
from afltool.plans.config import RunConfig
from afltool.plans.here import run
from afltool.plans.layout import RunFolder
from afltool.plans.made import Alone, Made
from afltool.plans.plan import LINK, Step, features, next_steps
from afltool.plans.slurm.jobs import Cut
from afltool.stages.stage import STAGES


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    at = tmp_path_factory.mktemp("rows")
    made = [
        (split, embeddings(at / f"{split}.npz", n)) for split, n in (("train", 300), ("test", 90))
    ]
    return {
        f"{split}_features": afltool.import_embeddings(x, at / f"{split}.h5") for split, x in made
    }


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
def test_the_commands_of_its_steps_one_after_another_make_what_run_makes(rows, cli, tmp_path, name):
    config = RunConfig(**rows, clients=4, scheme="iid", **CONFIGS[name])
    folder = RunFolder(tmp_path / "steps")
    folder.root.mkdir()
    for steps in next_steps(config, folder, lambda head: load_head(head).head.phase()):
        for step in steps:
            if step.stage.name == LINK:
                Alone().carry_out(step)
            else:
                done = cli(*step.line())
                assert done.exit_code == 0, done.stderr
    afltool.run(config, tmp_path / "run")
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
    parts = Cut(whole, whole.stage.parts, tmp_path / "parts", 5)
    for step in (*map(parts.step, range(5)), whole):
        step.make()
    there = [read_header(path) for path in whole.results()]
    assert len(there) == 1 + bool(held_out)
    again = [replace(step, out=tmp_path / f"{k}.h5") for k, step in enumerate(parts.joined())]
    for one, step in zip(there, again, strict=True):
        other = read_header(step.make(overwrite=True).path)
        assert (one["digest"], one["recipe"]) == (other["digest"], other["recipe"]), (
            "so the one is up to date where the other is wanted"
        )


def test_parts_of_features_are_joined_to_the_whole(tmp_path):
    config = RunConfig(data="digits", backbone="resnet18", weights="random", limit=12)
    whole = features(replace(config.extract, image_size=32), "test", tmp_path / "whole.h5")
    parts = Cut(whole, whole.stage.parts, tmp_path / "parts", 2)
    for number in range(2):
        step = parts.step(number)
        assert step.line()[-4:-2] == ["--shard", f"{number}/2"]
        step.make()
    [joined] = parts.joined()
    assert joined.line()[:2] == ["merge", str(tmp_path / "parts")]
    joined = replace(joined, out=tmp_path / "joined.h5")
    one, other = (read_header(step.make().path) for step in (whole, joined))
    assert (one["digest"], one["recipe"]) == (other["digest"], other["recipe"])


def test_an_equal_step_is_made_once_and_linked(road, tmp_path):
    stage, made = STAGES["partition"], Made(tmp_path / "steps")
    options = stage.options(clients=5, scheme="iid")
    steps = [Step(stage, options, {"features": road.train}, tmp_path / f"{n}.h5") for n in (1, 2)]
    first, second = (made.carry_out(step).path for step in steps)
    assert first.samefile(second)
    other = Step(stage, replace(options, seed=3), {"features": road.train}, tmp_path / "3.h5")
    assert read_header(made.carry_out(other).path)["digest"] != read_header(first)["digest"]


def test_inputs_of_a_stage_are_parameters_or_options():
    for stage in STAGES.values():
        own, every = (fields_of(one).keys() for one in (stage.options, stage.call))
        assert own <= every
        assert set(stage.plain) <= every - own
        assert callable(stage.function)
        assert callable(stage.function.job)


def test_what_runs_share_is_what_their_steps_make(rows, tmp_path):
    config = RunConfig(**rows, **CONFIGS["linear"])
    run(config, tmp_path / "run", made=Made(tmp_path / "steps"))
    kinds = sorted(one.name.rpartition("-")[0] for one in (tmp_path / "steps").iterdir())
    assert kinds == ["head", "local-stats", "local-stats", "partition", "solve"]
