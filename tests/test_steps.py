"""The three computations of a round on objects, what each head says of its arrays, and the runner:
what becomes of the files of a stage (done, missing, stale or damaged), and why, on one line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import HEADS, same, sums

import afltool
from afltool.errors import CorruptFileError, InvalidDataError, MismatchError, OutputExistsError
from afltool.files.hdf5 import read_header
from afltool.files.recipes import Target, change, is_done, state
from afltool.files.statistics import load_statistics, write_statistics
from afltool.heads import HEADS as REGISTERED
from afltool.heads import make_head
from afltool.heads.base import binding, statistics_of
from afltool.heads.evaluation import Evaluation
from afltool.heads.scaling import ScalingHead, ScalingOptions
from afltool.heads.scoring import score
from afltool.math.gram import LARGEST, FixedPoint
from afltool.memory import MemoryBudget
from afltool.options.statistics import Aggregate, LocalStats, Solve
from afltool.stages.aggregate import aggregate
from afltool.stages.local_stats import local_stats
from afltool.stages.runner import Files, Job, make
from afltool.stages.solve import solve
from afltool.values.statistics import Client, ClientId, Context, total_of

D, C, BITS = 6, 3, 14


def rows(n=90, seed=0):
    """int16 rows up to the largest numbers there are, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-LARGEST, LARGEST, 300, 0, -7000], size=(n, D)).astype(np.int16)
    return FixedPoint(X, BITS), np.arange(n) % C


def of(head, X, y, name="one"):
    """Statistics of a client, and the space of its rows."""
    bits = X.bits if isinstance(X, FixedPoint) else None
    context = Context({"dim": D, "fraction_bits": bits}, tuple("abc"), binding(head))
    return statistics_of(head, [(X, y)], {ClientId(name): Client(len(y))}, context)[0]


def check_specs(head, found, bits):
    """Shapes and kinds are those of the arrays, and no entry is beyond what the rows allow."""
    specs = head.array_specs(bits)
    assert specs.keys() == found.arrays.keys()
    for name, spec in specs.items():
        a = found.arrays[name]
        assert (a.shape, a.size) == (spec.shape, spec.size), name
        assert a.dtype == (np.int64 if spec.exact else np.float64), name
        assert spec.exact == (spec.kind in ("count", "int"))
        if spec.exact:
            assert spec.per_row < np.inf, name
            assert np.abs(a.astype(object)).max() <= found.rows * spec.per_row, name
        if spec.kind == "count":
            assert a.min() >= 0, name
            assert spec.per_row == 1, name


def test_a_head_says_what_each_of_its_arrays_is():
    """In every phase; all heads are here, and rows reach the largest numbers."""
    assert {one.split()[0] for one in HEADS} == set(REGISTERED)
    for way, options in HEADS.items():
        for bits in (BITS, None):
            if bits is None and "fixed" in way:
                continue  # fixed point takes int16 rows
            X, y = rows()
            X = X if bits else (X.values * 2.0**-BITS).astype(np.float32)
            head = make_head(way.split()[0], options).bind(D, C)
            while head.phase() is not None:
                found = of(head, X, y)
                check_specs(head, found, bits)
                head = head.absorb(found)[0]


def test_bounds_of_a_row_are_what_a_row_reaches():
    """Of DeepAFL to a factor of 2, by features and residuals at their limits."""
    from afltool.heads.deepafl.layers import LARGEST_RESIDUAL

    for way in (way for way in HEADS if way.startswith("deepafl fixed")):
        specs = make_head("deepafl", HEADS[way]).bind(D, C).array_specs(BITS)
        assert specs["gram"].per_row == 2**30
        assert {s.per_row for s in specs.values()} <= {2**15, 2**30, 2**15 * LARGEST_RESIDUAL}
    X, y = FixedPoint(np.full((1, D), LARGEST, np.int16), BITS), np.zeros(1, np.int64)
    for way in ("linear", "linear intercept", "discriminant naive-bayes", "discriminant qda"):
        head = make_head(way.split()[0], HEADS[way]).bind(D, C)
        for name, spec in head.array_specs(BITS).items():
            largest = np.abs(of(head, X, y).arrays[name]).max()
            assert 0.99 * spec.per_row < largest <= spec.per_row, (way, name)


def test_a_round_of_evaluation_and_of_scaling_say_theirs():
    X, y = rows()
    heads = []
    for way in ("linear", "softmax"):
        head = make_head(way, HEADS[way]).bind(D, C)
        while head.phase() is not None:
            head = head.absorb(of(head, X, y))[0]
        heads.append(head)
    counted = Evaluation.of(heads, None, ("x", "y"), 1)
    check_specs(counted, of(counted, X, y + C * (np.arange(len(y)) % 2)), BITS)
    scaling = ScalingHead(ScalingOptions()).bind(D, 1)
    real = np.where(np.arange(90)[:, None] % 7, X.values * 2.0**3, np.nan)
    check_specs(scaling, of(scaling, real, np.zeros(90, np.int64)), None)


def test_a_total_is_the_sum_of_its_parts_less_what_leaves():
    X, y = rows()
    head = make_head("linear", {"ridge": 1.0}).bind(D, C)
    parts = [of(head, X[k::4], y[k::4], f"c{k}") for k in range(4)]
    named = [(f"file {k}", one) for k, one in enumerate(parts)]
    assert same(total_of(named), parts[0] + parts[1] + parts[2] + parts[3])
    assert same(total_of(named, named[:1]), total_of(reversed(named[1:])))
    assert same(total_of(iter(named), iter(named[1:])), parts[0])
    pooled = of(head, X, y)
    assert total_of(named).digest() == pooled.digest() == sums(head, X, y).digest()
    assert pooled.context.head == binding(head)
    record = head.absorb(pooled)[1].round
    assert (record["phase"], record["rows"]) == ("gram", 90)
    a, b = parts[:2]  # an error says which part it is of
    other = replace(b, context=replace(b.context, classes=tuple("xyz")))
    with pytest.raises(MismatchError, match=r"^third: .*classes"):
        total_of([("first", a), ("third", other)])
    with pytest.raises(MismatchError, match=r"^again: .*given twice"):
        total_of([("first", a), ("again", a)])
    with pytest.raises(MismatchError, match=r"^leaver: .*cannot be subtracted"):
        total_of([("first", a)], [("leaver", b)])
    with pytest.raises(InvalidDataError, match="label"):
        of(head, X, y + C)


# ---------------------------------------------------------------- the runner


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
        def compute(todo):
            asked.append([one.path.stem for one in todo])
            for one in todo:
                write_statistics(one.path, one.recipe, s)

        recipe = {**total.recipe, "options": {**total.recipe["options"], "gamma": gamma}}
        return Job([Target(place / f"{name}.h5", recipe) for name in names], compute)

    assert make(job(0.0)) == "made, it was missing"
    assert make(job(0.0)) == "kept"
    with pytest.raises(OutputExistsError):
        make(job(1.0))
    caplog.clear()
    assert make(job(1.0), overwrite=True) == "made again"
    assert "a.h5 and 2 others: made again because stale: gamma 0.0 → 1.0" in caplog.text
    assert asked == [["a", "b"], ["a", "b", "total"]]


def test_steps_hand_objects_on_and_read_none_of_their_files(road, tmp_path, monkeypatch):
    """Sums and heads that a step has made are the next one's, while there is room."""
    files, out, digest = (
        Files(MemoryBudget(10**7)),
        tmp_path / "t.h5",
        read_header(road.head)["digest"],
    )
    how = LocalStats(road.train, road.head0, out, partition=road.clients, sum=True)
    make(local_stats.job(how, files))

    def read(*_, **how):
        raise AssertionError("a file is read")

    monkeypatch.setattr("afltool.stages.runner.read_statistics", read)
    make(solve.job(Solve(out, tmp_path / "h.h5"), files))
    monkeypatch.setattr("afltool.stages.runner.load_head", read)
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
