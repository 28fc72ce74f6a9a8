"""Intact files, digests and all, whose content does not fit together: refused with a message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import embeddings
from damage import forge
from test_bad_input import INPUT, MISMATCH, refused

import afltool
from afltool.errors import MismatchError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head, save_head
from afltool.files.statistics import load_statistics, save_statistics
from afltool.heads import HEADS
from afltool.memory import MemoryBudget
from afltool.options.statistics import LocalStats
from afltool.stages.local_stats import local_stats
from afltool.stages.runner import Files, make
from afltool.values.statistics import Context

OPTIONS_OF = {
    "linear": {"intercept": True},
    "random-features": {"width": 6, "with_linear": True, "intercept": True},
    "deepafl": {"layers": 1, "feature_width": 5, "hidden_width": 7},
    "safle": {"buckets": 3, "with_linear": True, "experts": 4},
    "softmax": {"rounds": 2},
    "discriminant": {},
}


def rounds(name, road, at):
    """Every (head file, total, next head file) of a head from its start to its end."""
    head = afltool.head(name, at / "0.h5", head_options=OPTIONS_OF[name])
    number = 0
    while load_head(head)[0].phase() is not None:
        number += 1
        total = afltool.local_stats(
            road.train, head, at / f"t{number}.h5", partition=road.clients, sum=True
        )
        after = afltool.solve(total, at / f"{number}.h5", head=head)
        yield head, total, after
        head = after


def misfits(arrays):
    """(what, arrays): one lacking, one too many, one of another shape, kind, or not finite."""
    for name, array in arrays.items():
        rest = {k: a for k, a in arrays.items() if k != name}
        yield f"without {name}", rest
        yield f"{name} longer", {**rest, name: np.concatenate([array, array])}
        yield f"{name} shorter", {**rest, name: array[:-1]}
        yield f"{name} flat", {**rest, name: array.reshape(-1)[None, :]}
        if array.dtype.kind == "i" and rest:
            yield f"{name} of reals", {**rest, name: array.astype(np.float64)}
        if array.dtype.kind == "f":
            yield f"{name} with NaN", {**rest, name: np.where(array == array.max(), np.nan, array)}
    yield "one too many", {**arrays, "more": np.arange(3)}


FORGED = {"stage": "x", "options": {}, "inputs": {}}
EACH_HEAD = [
    pytest.param(name, marks=[] if name == "linear" else pytest.mark.slow) for name in HEADS
]


def test_the_message_says_what_does_not_fit(road, tmp_path, cli):
    """7 × 7 of gram beside 8 rows of cross, no cross at all, and other class counts."""
    whole, out = load_statistics(road.total), tmp_path / "o.h5"
    gram = whole.arrays["gram"]
    small, lone, counted = (tmp_path / f"{name}.h5" for name in ("small", "lone", "counted"))
    shorter = {**whole.arrays, "gram": gram[:28]}
    save_statistics(small, replace(whole, arrays=shorter), FORGED)
    said = "'gram' is (28,) of integers, expected (36,) of integers"
    refused(cli("solve", small, "-o", out), INPUT, small, "a linear head of 8 features", said)
    folded = cli("aggregate", small, "--law", "pairwise", "-o", out)
    refused(folded, INPUT, "gram (28,) and cross (8, 4)")
    save_statistics(lone, replace(whole, arrays={"gram": gram}), FORGED)
    said = "'cross' is absent, expected (8, 4) of integers"
    refused(cli("solve", lone, "-o", out), INPUT, lone, said)
    c = whole.class_counts
    for counts, what in (
        (c[:-1], "the rows of 3 classes"),
        (np.append(c, 5), "the rows of 5 classes"),
        (c - c.max(), "the least -"),
        (c + 1, "its classes have 604 rows, its 6 clients 600"),
    ):
        save_statistics(counted, replace(whole, class_counts=counts), FORGED)
        refused(cli("aggregate", counted, "-o", out), INPUT, counted, what)
    assert not out.exists()


@pytest.mark.parametrize("name", EACH_HEAD)
def test_arrays_that_do_not_fit_the_head(name, road, tmp_path, cli):
    """Sums and learned arrays of other shapes, lacking or too many, in every phase: no reader
    computes."""
    for number, (head, total, after) in enumerate(rounds(name, road, tmp_path)):
        _check_sums(number, head, total, tmp_path, cli)
        _check_learned(number, after, road, tmp_path, cli)


def _check_sums(number, head, total, at, cli):
    whole, out, more = load_statistics(total), at / "o.h5", ["--head", head] * bool(number)
    for what, arrays in misfits(whole.arrays):
        path = at / f"{number}-{what.replace(' ', '-')}.h5"
        save_statistics(path, replace(whole, arrays=arrays), FORGED)
        refused(cli("solve", path, *more, "-o", out), INPUT, path)
        done = cli("solve", total, "--validate", path, *more, "-o", out)
        if done.exit_code == MISMATCH:
            assert "is held out and also in the total" in done.stderr
        else:
            refused(done, INPUT, path)
        assert not out.exists()


def _check_learned(number, head, road, at, cli):
    found, header = load_head(head)
    context = Context(header["space"], tuple(header["classes"]))
    for what, arrays in misfits(found.state_dict()):
        if "NaN" in what or "of reals" in what:
            continue  # numbers that somebody made up, but numbers
        if what in ("covered shorter", "without rounding"):
            continue  # other clients are then refused; heads of 0.3 say no rounding
        path = at / f"h{number}-{what.replace(' ', '-')}.h5"
        save_head(path, _Forged(found, arrays), FORGED, context)
        gather = ["local-stats", road.train, "--client", "a", "-o", at / "s", "--head"]
        use = ["evaluate", path, road.test] if found.phase() is None else [*gather, path]
        for args in (use, ["verify", path]):
            refused(cli(*args), INPUT, path)


class _Forged:
    """A head as `save_head` sees it, with other arrays and the digest that they have."""

    def __init__(self, head, arrays):
        self._head, self._arrays = head, arrays

    def __getattr__(self, name):
        return getattr(self._head, name)

    def state_dict(self):
        return self._arrays

    def digest(self):
        return type(self._head).digest(self)


def test_a_header_of_another_form(road, tmp_path, cli):
    clients = read_header(road.total)["clients"]
    twice = {**clients, "names": [clients["names"][1], *clients["names"][1:]]}
    untold = {k: v for k, v in clients.items() if k != "dealt_to"}
    context = {"space": {}, "classes": 4, "head": {}}
    for number, (change, what) in enumerate((
        ({"clients": []}, "in its header clients: expected `object`, got `array`"),
        ({"clients": untold}, "clients: object missing required field `dealt_to`"),
        ({"clients": twice}, "a client is listed twice"),
        ({"phase": None}, "phase: expected `str`, got `null`"),
        ({"context": context}, "context.classes: expected `array`, got `int`"),
        ({"recipe": {"stage": "x", "options": {}}}, "missing required field `inputs`"),
        ({"digest": 5}, "digest: expected `str`, got `int`"),
    )):  # fmt: skip
        path = forge(road.total, tmp_path / f"{number}.h5", change)
        refused(cli("aggregate", path, "-o", tmp_path / "o.h5"), INPUT, path, what)


# ---------------------------------------------------------------- what is said of a sum


def test_clients_that_are_missing_are_counted(road, tmp_path, cli):
    files, out, no = sorted(road.stats.iterdir()), tmp_path / "o.h5", tmp_path / "no.h5"
    named = f"4 of 6 clients of the partition {afltool.info(road.clients)['digest'][:12]}"
    done = cli("aggregate", *files[:4], "-o", out)
    assert f"{named} are in the sum, missing: 2" in " ".join(done.stderr.split())
    refused(cli("aggregate", *files[:4], "--complete", "-o", no), INPUT, named, "missing: 2")
    done = cli("aggregate", out, *files[4:], "--complete", "-o", tmp_path / "p.h5")
    assert done.exit_code == 0
    assert "6 of 6 clients" in done.stderr
    assert "missing" not in done.stderr
    assert afltool.info(tmp_path / "p.h5")["digest"] == afltool.info(road.total)["digest"]
    every = [[f"--subtract={path}" for path in files[:k]] for k in (2, 6)]
    done = cli("aggregate", road.stats, *every[0], "-o", tmp_path / "l.h5")
    assert (done.exit_code, "4 of 6 clients" in done.stderr) == (0, True)
    assert afltool.info(tmp_path / "l.h5")["clients"] == 4
    less = cli("aggregate", road.stats, *every[0], "--complete", "-o", no)
    refused(less, INPUT, "4 of 6 clients", "missing: 2, 2 by --subtract")
    none = cli("aggregate", road.total, *every[1], "--complete", "-o", no)
    refused(none, INPUT, "0 of 6 clients", "missing: 6")
    for twice in ([road.stats, files[3]], [road.total, files[3]]):
        done = cli("aggregate", *twice, "-o", no)
        refused(done, MISMATCH, files[3], "client 3", "is given twice")
        assert "6 of 6 clients" in done.stderr
    assert not no.exists()


def test_held_out_clients_are_counted_apart_and_silos_not_at_all(road, tmp_path, cli):
    dealt = afltool.partition(road.train, tmp_path / "c.h5", scheme="iid", clients=10, held_out=0.2)
    stats = afltool.local_stats(road.train, "linear", tmp_path / "s", partition=dealt)
    more = ["--complete", "--held-out", tmp_path / "v.h5", "-o", tmp_path / "t.h5"]
    done = cli("aggregate", stats, *more)
    assert done.exit_code == 0
    assert "8 of 8 clients" in done.stderr
    assert "2 of 2 held-out clients" in done.stderr
    afltool.local_stats(road.train, "linear", tmp_path / "sum.h5", partition=dealt, sum=True,
                        held_out=tmp_path / "held.h5")  # fmt: skip
    silo = afltool.local_stats(road.test, "linear", tmp_path / "site.h5", client="site", sum=True)
    for number, one in enumerate((tmp_path / "sum.h5", silo)):
        done = cli("aggregate", one, "--complete", "-o", tmp_path / f"{number}.h5")
        assert (done.exit_code, "of the partition" in done.stderr) == (0, one != silo)


# ---------------------------------------------------------------- features of other classes


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same rows with 2 classes and with an empty third one; one digest."""
    at = tmp_path_factory.mktemp("twins")
    raw = embeddings(at / "x.npz", 60, d=8, classes=2)
    files = [
        afltool.import_embeddings(raw, at / str(len(names)) / "x.h5", classes=names)
        for names in (("a", "b"), ("a", "b", "c"))
    ]
    assert len({afltool.info(path)["digest"] for path in files}) == 1
    return files


MADE_OF_ROWS = {
    "local-stats": lambda rows, at: afltool.local_stats(rows, "linear", at / "s", client="site"),
    "split": lambda rows, at: afltool.split(rows, at / "parts", test_size=0.5),
    "convert": lambda rows, at: afltool.convert(rows, at / "c.h5", dtype="float32"),
    "partition": lambda rows, at: afltool.partition(rows, at / "p.h5", scheme="iid", clients=2),
}


@pytest.mark.parametrize("stage", MADE_OF_ROWS)
def test_a_file_of_two_classes_is_not_up_to_date_for_rows_of_three(stage, twins, tmp_path):
    """A digest of features covers no class names, so recipes name the classes beside it; files from
    before they did are compared by their own."""
    make = MADE_OF_ROWS[stage]
    made = make(twins[0], tmp_path)
    for older in (False, True)[: 1 + (stage != "partition")]:
        for path in (made if isinstance(made, tuple) else (made,)) if older else ():
            header = read_header(path)
            for key in ("classes", "space") if stage != "local-stats" else ("classes",):
                del header["recipe"]["inputs"][key]
            forge(path, path, {"recipe": header["recipe"]})
        assert make(twins[0], tmp_path) == made
        with pytest.raises(UsageError, match=r"made differently: .*classes 2 → 3 entries"):
            make(twins[1], tmp_path)


def test_a_run_takes_nothing_over_from_rows_of_other_classes(twins, tmp_path):
    """Not the partition: one process works on both files."""
    files = Files(MemoryBudget(1 << 30))

    def gathered(rows, out, partition):
        how = LocalStats(rows, "linear", tmp_path / out, partition=partition, sum=True)
        with files.reading():
            make(local_stats.job(how, files))
        return load_statistics(tmp_path / out).arrays["cross"].shape

    iid = {"scheme": "iid", "clients": 2}
    dealt = [afltool.partition(rows, tmp_path / f"{k}.h5", **iid) for k, rows in enumerate(twins)]
    assert gathered(twins[0], "two.h5", dealt[0]) == (8, 2)
    assert gathered(twins[1], "three.h5", dealt[1]) == (8, 3)
    with pytest.raises(MismatchError, match="rows of 2 classes"):
        gathered(twins[1], "x.h5", dealt[0])


def test_numbers_of_another_unit_are_not_up_to_date(tmp_path):
    """Equal int16 numbers with other fraction bits have one digest, and are other features."""
    raw = embeddings(tmp_path / "x.npz", 60)
    with np.load(raw) as arrays:
        halved = {"x": arrays["x"] / 2, "y": arrays["y"]}
    np.savez(tmp_path / "half.npz", **halved)
    one = afltool.import_embeddings(raw, tmp_path / "9.h5", fraction_bits=9)
    two = afltool.import_embeddings(tmp_path / "half.npz", tmp_path / "10.h5", fraction_bits=10)
    assert afltool.info(one)["digest"] == afltool.info(two)["digest"]
    afltool.convert(one, tmp_path / "c.h5", dtype="float32")
    with pytest.raises(UsageError, match="fraction_bits 9 → 10"):
        afltool.convert(two, tmp_path / "c.h5", dtype="float32")


# ---------------------------------------------------------------- heads that are bound to a space


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Features of one space by name of what differs."""
    at = tmp_path_factory.mktemp("bound")
    raw, wide = embeddings(at / "x.npz", 60), embeddings(at / "wide.npz", 60, d=9)
    options = {
        "good": {}, "backbone": {"backbone": "other"}, "fraction_bits": {"fraction_bits": 8},
        "dtype": {"dtype": "float32"}, "classes": {"classes": [*map(str, range(5))]}, "dim": {},
    }  # fmt: skip
    return {
        name: afltool.import_embeddings(wide if name == "dim" else raw, at / f"{name}.h5", **one)
        for name, one in options.items()
    }


def test_other_features_than_a_heads_are_refused_before_anything_is_computed(made, tmp_path, cli):
    out, ours = tmp_path / "out", tmp_path / "ours.h5"
    afltool.local_stats(made["good"], "linear", ours, client="a", sum=True)
    head = afltool.solve(ours, tmp_path / "head.h5")
    for field in ("backbone", "fraction_bits", "dtype", "dim", "classes"):
        named = "classes has" if field == "classes" else f"space.{field}"
        other = afltool.local_stats(made[field], "linear", tmp_path / f"{field}.h5", client="b",
                                    sum=True)  # fmt: skip
        for *args, file in (
            ["aggregate", ours, "--allow-repeats", other],
            ["aggregate", other, "--subtract", ours],
            ["solve", ours, "--validate", other],
            ["evaluate", head, made[field]],
        ):
            refused(cli(*args, file, "-o", out), MISMATCH, named[:11], file)
            assert not out.exists()


def test_the_next_round_is_of_the_same_features(made, tmp_path):
    head = afltool.head("softmax", tmp_path / "0.h5", head_options={"rounds": 2})
    total = afltool.local_stats(made["good"], head, tmp_path / "t.h5", client="a", sum=True)
    after = afltool.solve(total, tmp_path / "1.h5", head=head)
    with pytest.raises(MismatchError, match=r"space\.backbone"):
        afltool.local_stats(made["backbone"], after, tmp_path / "other", client="a")
