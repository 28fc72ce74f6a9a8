"""What becomes of the files of a stage: done, missing, stale or damaged, and why, on one line."""

from __future__ import annotations

import os
from functools import partial

import pytest

import afltool
from afltool.errors import CorruptFileError, OutputExistsError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.recipes import Target, change, is_done, state
from afltool.files.statistics import load_statistics, write_statistics
from afltool.heads import make_head
from afltool.heads.scoring import score
from afltool.memory import Room
from afltool.options.statistics import Aggregate, LocalStats, Solve
from afltool.stages.aggregate import aggregate
from afltool.stages.local_stats import local_stats
from afltool.stages.runner import Files, Job, make
from afltool.stages.solve import solve


@pytest.fixture
def total(road, tmp_path):
    """A copy of the total, and the target that it is."""
    path = tmp_path / "total.h5"
    path.write_bytes(road.total.read_bytes())
    return Target(path, read_header(path)["recipe"])


def test_a_file_is_done_missing_stale_or_damaged_and_the_reason_is_one_line(total, tmp_path):
    assert state(total).word == state(total, every_byte=True).word == "done"
    assert state(Target(tmp_path / "nowhere.h5", total.recipe)).word == "missing"
    options = {**total.recipe["options"], "gamma": 2.0}
    other = Target(total.path, {**total.recipe, "options": options})
    assert str(state(other)) == "stale: gamma 0.0 → 2.0"
    with pytest.raises(OutputExistsError, match=r"made differently: gamma 0\.0 → 2\.0"):
        is_done(other)
    data = bytearray(total.path.read_bytes())
    sums = load_statistics(total.path).class_counts.astype("<i8").tobytes()
    data[data.index(sums)] ^= 1
    total.path.write_bytes(bytes(data))
    assert state(total).word == "done", "the header is intact"
    found = state(total, every_byte=True)
    assert found.word == "damaged"
    assert "\n" not in found.reason
    with pytest.raises(CorruptFileError, match="is not usable"):
        is_done(total)


def test_a_reason_names_the_first_field_with_both_values():
    one = {"stage": "solve", "options": {"ridge": 1.0}, "inputs": {"total": "a" * 64}}
    assert change(one, one) == ""
    assert change(one, {**one, "options": {"ridge": "auto"}}) == "ridge 1.0 → 'auto'"
    assert (
        change(one, {**one, "inputs": {"total": "b" * 64}}) == "inputs.total aaaaaaaa… → bbbbbbbb…"
    )
    assert change({"options": {"clients": ["a"]}}, {"options": {"clients": ["a", "b"]}}) == (
        "clients 1 → 2 entries"
    )
    assert change({"options": {}}, {"options": {"seed": 0}}) == "seed None → 0"


def test_only_what_is_not_done_is_computed_and_why_it_is_made_again_is_said(total, caplog):
    caplog.set_level("INFO", "afltool")
    place, s = total.path.parent, load_statistics(total.path)
    names, asked = ("a", "b", "total"), []

    def job(gamma):
        def compute(todo, put):
            asked.append([one.path.stem for one in todo])
            for one in todo:
                put(one, partial(write_statistics, s=s))

        recipe = {**total.recipe, "options": {**total.recipe["options"], "gamma": gamma}}
        return Job([Target(place / f"{name}.h5", recipe) for name in names], compute)

    assert [one.how for one in make(job(0.0), Files())] == ["made, it was missing"] * 2 + ["kept"]
    assert [one.how for one in make(job(0.0), Files())] == ["kept"] * 3
    with pytest.raises(OutputExistsError):
        make(job(1.0), Files())
    caplog.clear()
    assert [one.how for one in make(job(1.0), Files(), overwrite=True)] == ["made again"] * 3
    assert "a.h5 and 2 others: made again because stale: gamma 0.0 → 1.0" in caplog.text
    assert asked == [["a", "b"], ["a", "b", "total"]]


def test_no_output_is_a_file_that_the_job_reads_by_whatever_name(road, tmp_path):
    parts = afltool.local_stats(road.train, road.head0, tmp_path / "s", partition=road.clients)
    os.link(parts / "client-0.h5", tmp_path / "hard.h5")
    before = (tmp_path / "hard.h5").read_bytes()
    for out in (parts / "client-0.h5", parts / ".." / "s" / "client-0.h5", tmp_path / "hard.h5"):
        with pytest.raises(UsageError, match="a file that this command reads"):
            afltool.aggregate([parts], out, overwrite=True)
    assert (tmp_path / "hard.h5").read_bytes() == before


def test_steps_hand_objects_on_and_read_none_of_their_files(road, tmp_path, monkeypatch):
    """Sums and heads that a step has made are the next one's, while there is room."""
    files, out, digest = Files(Room(10**7)), tmp_path / "t.h5", read_header(road.head)["digest"]
    how = LocalStats(road.train, road.head0, out, partition=road.clients, sum=True)
    local_stats(how, files)

    def read(*_, **how):
        raise AssertionError("a file is read")

    monkeypatch.setattr("afltool.files.statistics.read_statistics", read)
    solve(Solve(out, tmp_path / "h.h5"), files)
    monkeypatch.setattr("afltool.files.heads.load_head", read)
    assert files.head(tmp_path / "h.h5").head.digest() == digest
    files.forget(out)
    with pytest.raises(AssertionError, match="a file is read"):
        files.statistics(out)


def test_the_functions_of_objects_are_those_of_the_files(road):
    """A solved head and its accuracies, without a file of either."""
    total = load_statistics(road.total)
    head = make_head("linear", {"ridge": 0}).bind(8, len(total.context.classes))
    after, _ = head.absorb(total)
    assert after.digest() == afltool.info(road.head)["digest"]
    with Files().reading() as files:
        rows = files.features(road.test)
        found = score(after, rows.blocks(), rows.labels, len(rows.classes))
    [counted] = found.counted.values()
    assert counted.tops["top1"] == afltool.evaluate(road.head, road.test)["top1"]
    job = aggregate.job(Aggregate([road.stats], road.folder / "no.h5"), Files())
    assert job.targets[0].recipe == read_header(road.total)["recipe"]
