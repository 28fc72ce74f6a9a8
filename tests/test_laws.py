"""The laws of `Statistics`, by name, on random problems: exact, so compared bit for bit; and rows
under two names, which are not added up, as far as files can tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from conftest import embeddings
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import row_sets, same, statistics_of, total
from test_bad_input import MISMATCH, refused

import afltool
from afltool.errors import InvalidDataError, MismatchError, NumericalError
from afltool.files.features import features_digest
from afltool.partitions import rows_digest
from afltool.values.arrays import Digest
from afltool.values.names import Phase
from afltool.values.statistics import Client, ClientId, Statistics, Sum
from afltool.values.text import difference

fast = settings(max_examples=40, deadline=None, derandomize=True)


def thirds(rows, seed):
    """The same rows dealt to three clients, some of them possibly empty."""
    X, y, classes = rows
    owner = np.random.default_rng(seed).integers(0, 3, size=len(X))
    return [statistics_of(X[owner == k], y[owner == k], classes, f"c{k}") for k in range(3)]


@fast
@given(row_sets(), st.integers(0, 99), st.permutations(range(3)))
def test_associative_and_commutative(rows, seed, order):
    a, b, c = parts = thirds(rows, seed)
    assert same((a + b) + c, a + (b + c))
    assert same(total(parts), total(parts[k] for k in order))


@fast
@given(row_sets(), st.integers(0, 99))
def test_zero_and_subtraction(rows, seed):
    a, b, c = thirds(rows, seed)
    assert same((a + b + c) - b, a + c)
    zero = b - b
    assert (zero.rows, zero.clients) == (0, {})
    assert not any(array.any() for array in zero.arrays.values())
    assert same(a + zero, a)
    assert same(zero + a, a)


@fast
@given(row_sets(), st.integers(0, 99))
def test_pooling(rows, seed):
    """However the rows are dealt, and in whatever order."""
    X, y, classes = rows
    pooled, dealt = statistics_of(*rows), total(thirds(rows, seed))
    assert dealt.digest() == pooled.digest()
    assert dealt.rows == pooled.rows == len(X)
    at = np.random.default_rng(seed).permutation(len(X))
    assert statistics_of(X[at], y[at], classes).digest() == pooled.digest()


def one(client="a", rows=4, **changes):
    X = np.arange(rows * 3, dtype=np.int16).reshape(rows, 3)
    return replace(statistics_of(X, np.arange(rows) % 2, 2, client), **changes)


def test_what_would_be_counted_twice_or_was_never_there_is_refused():
    a, b = one("a"), one("b")
    before = a.digest(), b.digest()
    assert ((a + b).rows, (a.digest(), b.digest())) == (8, before), "summands stay"
    with pytest.raises(MismatchError, match=r"client a is given twice"):
        a + one("a")
    with pytest.raises(MismatchError, match="client b cannot be subtracted"):
        a - b
    with pytest.raises(MismatchError, match="or taken out"):
        ((a + b) - b) - b
    with pytest.raises(MismatchError, match=r"rows is 3 in these statistics, 4 in the sum"):
        (a + b) - one("b", rows=3)
    of = [{ClientId("0", p): Client(4, rows_digest="rows")} for p in ("p1", "p2")]
    with pytest.raises(MismatchError, match="two partitions of the same rows"):
        replace(one(), clients=of[0]) + replace(one(), clients=of[1])
    with pytest.raises(MismatchError, match="clients a and b have the rows"):
        silo("a", "file") + silo("b", "file")
    assert (silo("a", "file") + silo("b", "other")).rows == 2
    assert (silo("a", "file", 0) + silo("b", "file")).rows == 1, "no rows are no rows twice"
    assert (silo("a", "") + silo("b", "")).rows == 2, "not told"
    assert Sum(silo("a", "file"), repeats=True).add(silo("b", "file")).result().rows == 2
    both = silo("a", "x") + silo("b", "file") - silo("b", "file") + silo("c", "file")
    assert {who.name for who in both.clients} == {"a", "c"}


def silo(name, source, rows=1):
    who = {ClientId(name): Client(rows, source=source)}
    return Statistics(Phase("gram"), {"gram": np.ones(1)}, np.array([rows]), clients=who)


def test_what_does_not_belong_together_is_refused_with_the_field():
    context = one().context
    for change, message in (
        ({"phase": "other"}, "phase is 'other'"),
        ({"context": replace(context, classes=("0", "x"))}, "'x' only in these; '1' only in"),
        ({"context": replace(context, space={"fraction_bits": 8})}, "fraction_bits is 8"),
        ({"arrays": {"gram": one().arrays["gram"]}}, "cross is None in these"),
    ):
        with pytest.raises(MismatchError, match=message):
            one("a") + one("b", **change)


def test_int64_overflow_is_refused_before_it_happens():
    huge = {"gram": np.full(6, 2**62, np.int64), "cross": one().arrays["cross"]}
    a, b = one("a", arrays=huge), one("b", arrays=huge)
    with pytest.raises(NumericalError, match="could exceed int64"):
        a + b
    assert a.arrays["gram"][0] == 2**62


def test_the_digest_ignores_clients_and_gamma_and_nothing_else():
    a = one("a")
    assert replace(a, clients={ClientId("z"): Client(4, gamma=3.0)}).digest() == a.digest()
    assert replace(a, class_counts=a.class_counts + 1).digest() != a.digest()
    assert replace(a, phase="p").digest() != a.digest()
    clients = {ClientId(str(k)): Client(1, gamma=float(k % 2)) for k in range(5)}
    assert replace(a, clients=clients).gammas == {0.0: 3, 1.0: 2}
    with pytest.raises(InvalidDataError, match="spaces"):
        replace(one(), arrays={"a <i8 1\n": np.array([1])}).digest()


def test_a_sum_of_ten_thousand_clients_is_linear_in_their_number():
    tiny = Statistics(Phase("gram"), {"gram": np.ones(1, np.int64)}, np.ones(1, np.int64))
    running = Sum(replace(tiny, clients={ClientId("0"): Client(1)}))
    for k in range(1, 10_000):
        running.add(replace(tiny, clients={ClientId(str(k)): Client(1)}))
    found = running.result()
    assert found.rows == len(found.clients) == int(found.arrays["gram"][0]) == 10_000


def test_difference_names_the_first_field_with_both_values():
    assert difference({"a": [1, 2]}, {"a": [1, 3]}, "in A", "in B") == "a[1] is 3 in B, 2 in A"
    assert difference({"a": 1}, {"a": 1}, "in A", "in B") == ""
    assert "2 entries in B, 1 in A" in difference({"a": [1]}, {"a": [1, 2]}, "in A", "in B")


def numbers(array):
    return Statistics(Phase("gram"), {"a": np.asarray(array)}, np.array([1]))


def test_equal_numbers_have_one_digest_in_every_type_that_holds_them():
    shapes = [(), (1,), (2, 3), (0,), (0, 3)]
    for kind, shape in product(["i1", "u4", ">i4", "<i8", "f2", ">f4", "f8"], shapes):
        array = np.full(shape, 3)
        plain = np.int64 if np.dtype(kind).kind in "iu" else np.float64
        digest = numbers(array.astype(kind)).digest()
        assert digest == numbers(array.astype(plain)).digest()
        others = {numbers(np.full(s, 3, plain)).digest() for s in {(), (1,), (1, 1)} - {shape}}
        assert digest not in others


def test_what_is_no_number_of_a_canonical_type_has_no_digest():
    for array in (
        np.array([True]), np.array([1 + 2j]), np.array([2**64 - 1], "u8"), np.array([1], "m8[s]"),
        np.array([1], object), np.array(["1"]), np.array([b"1"]), np.array([(1, 2)], "i4,i4"),
    ):  # fmt: skip
        kind = "<i8" if array.dtype.kind in "um" else "<f8"
        for work in (
            numbers(array).digest,
            lambda: numbers(array) + numbers(array),  # noqa: B023
            lambda: Digest().array("a", array, kind),  # noqa: B023
        ):
            with pytest.raises(InvalidDataError, match="of type"):
                work()


def test_digests_of_rows_tell_ids_apart_and_no_bytes_of_objects():
    X, ids = np.ones((2, 1), np.float32), np.array([b"a", b"b"])
    assert features_digest(X, None, ids) == features_digest(X.astype(">f4"), None, ids)
    for wrong in (X.astype(object), X.astype(complex), X.astype(str)):
        with pytest.raises(InvalidDataError, match="of type"):
            features_digest(wrong, None, ids)
    for two in ([b"a\nb", b"c"], [b"a", b"b\nc"]):
        with pytest.raises(InvalidDataError, match="several lines"):
            features_digest(X, None, np.array(two))
        with pytest.raises(InvalidDataError, match="several lines"):
            rows_digest(np.array(two), np.array([0, 1]))


# ---------------------------------------------------------------- files of the same rows


SOURCE, EQUAL = "rows of the same feature file", "hold the same sums, number by number"


@pytest.fixture(scope="module")
def silos(road, tmp_path_factory):
    """Files of silos: one site twice, another, and the same rows in another order."""
    at = tmp_path_factory.mktemp("silos")
    with np.load(road.embeddings) as arrays:
        x, y = arrays["x"], arrays["y"]
    np.savez(at / "turned.npz", x=x[::-1], y=y[::-1])
    files = {
        "a": road.train,
        "b": road.train,
        "other": road.test,
        "turned": afltool.import_embeddings(at / "turned.npz", at / "turned.h5"),
        "half": afltool.import_embeddings(embeddings(at / "h.npz", 300), at / "half.h5"),
    }
    return {
        name: afltool.local_stats(path, road.head0, at / "s", client=name)
        for name, path in files.items()
    }


def test_the_same_rows_by_two_names_are_refused(road, silos, tmp_path, cli):
    """Of one file, in another order, inside a total, dealt and whole; unless they are meant."""
    out, one = tmp_path / "t.h5", min(road.stats.iterdir())
    done = cli("aggregate", silos["a"], silos["b"], "-o", out)
    refused(done, MISMATCH, silos["b"], "client b", EQUAL, "--allow-repeats")
    done = cli("aggregate", silos["a"], silos["turned"], "-o", out)
    refused(done, MISMATCH, silos["turned"], EQUAL)
    for files in ([road.stats, silos["a"]], [silos["a"], one]):
        refused(cli("aggregate", *files, "-o", out), MISMATCH, SOURCE, "client")
    done = cli("solve", road.total, "--validate", silos["a"], "-o", out)
    said = "rows that the head has not seen"
    refused(done, MISMATCH, silos["a"], "the same feature file", said)
    assert not out.exists()
    assert cli("aggregate", silos["a"], silos["b"], "--allow-repeats", "-o", out).exit_code == 0
    assert afltool.info(out)["rows"] == 1200
    again = cli("aggregate", out, silos["other"], "-o", tmp_path / "u.h5")
    assert again.exit_code == 0, "what was meant once is not asked again"
    total = afltool.aggregate([silos["a"], silos["other"]], tmp_path / "v.h5")
    for law in ("sum", "pairwise"):
        words = ["aggregate", total, silos["b"], "--law", law, "-o", tmp_path / f"{law}.h5"]
        refused(cli(*words), MISMATCH, "clients a and b", SOURCE, "--allow-repeats")
        assert cli(*words, "--allow-repeats").exit_code == 0


def test_what_honest_federations_have_is_added(road, silos, tmp_path):
    """Other files; clients of one partition with equal rows or none; a client that comes back."""
    afltool.aggregate([silos["a"], silos["other"], silos["half"]], tmp_path / "t.h5")
    np.savez(tmp_path / "e.npz", x=np.ones((6, 2)), y=np.arange(6) % 2)
    same = afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "e.h5")
    dealt = afltool.partition(same, tmp_path / "c.h5", scheme="iid", clients=8)
    stats = afltool.local_stats(same, "linear", tmp_path / "s", partition=dealt)
    digests = [afltool.info(p)["digest"] for p in stats.iterdir()]
    assert len(set(digests)) == 3, "the premise: equal clients, and equal empty ones"
    total = afltool.aggregate([stats], tmp_path / "u.h5")
    one = next(iter(sorted(stats.iterdir())))
    less = afltool.aggregate([total], tmp_path / "v.h5", subtract=[one])
    assert (
        afltool.info(afltool.aggregate([less, one], tmp_path / "w.h5"))["digest"]
        == (afltool.info(total)["digest"])
    )
