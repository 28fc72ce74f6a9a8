"""The laws of `Statistics`, by name, on random problems; exact, so compared bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import row_sets, same, statistics_of, total

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
@given(row_sets(), st.integers(0, 99))
def test_associative(rows, seed):
    a, b, c = thirds(rows, seed)
    assert same((a + b) + c, a + (b + c))


@fast
@given(row_sets(), st.integers(0, 99))
def test_commutative(rows, seed):
    a, b, _ = thirds(rows, seed)
    assert same(a + b, b + a)


@fast
@given(row_sets(), st.integers(0, 99))
def test_zero(rows, seed):
    a, b, _ = thirds(rows, seed)
    zero = b - b
    assert (zero.rows, zero.clients) == (0, {})
    assert not any(array.any() for array in zero.arrays.values())
    assert same(a + zero, a)
    assert same(zero + a, a)


@fast
@given(row_sets(), st.integers(0, 99))
def test_pooling(rows, seed):
    pooled = statistics_of(*rows)
    dealt = total(thirds(rows, seed))
    assert dealt.digest() == pooled.digest()
    assert dealt.rows == pooled.rows == len(rows[0])


@fast
@given(row_sets(), st.integers(0, 99))
def test_subtraction(rows, seed):
    a, b, c = thirds(rows, seed)
    assert same((a + b + c) - b, a + c)


@fast
@given(row_sets(), st.integers(0, 99))
def test_permutation_of_rows(rows, seed):
    X, y, classes = rows
    order = np.random.default_rng(seed).permutation(len(X))
    assert statistics_of(X[order], y[order], classes).digest() == statistics_of(*rows).digest()


@fast
@given(row_sets(), st.integers(0, 99), st.permutations(range(3)))
def test_permutation_of_clients(rows, seed, order):
    parts = thirds(rows, seed)
    assert same(total(parts), total(parts[k] for k in order))


def test_adding_does_not_change_the_summands():
    a = statistics_of(np.ones((3, 2), np.int16), np.zeros(3, np.int64), 1, "a")
    b = statistics_of(np.ones((2, 2), np.int16), np.zeros(2, np.int64), 1, "b")
    before = a.digest(), b.digest()
    both = a + b
    assert (a.digest(), b.digest()) == before
    assert both.rows == 5


def one(client="a", rows=4, **changes):
    X = np.arange(rows * 3, dtype=np.int16).reshape(rows, 3)
    return replace(statistics_of(X, np.arange(rows) % 2, 2, client), **changes)


def test_a_client_twice_is_refused_by_name():
    with pytest.raises(MismatchError, match=r"client a is given twice"):
        one("a") + one("a")


def test_two_partitions_of_the_same_rows_are_refused():
    def of(partition):
        who = {ClientId("0", partition): Client(4, rows_digest="rows")}
        return replace(one(), clients=who)

    with pytest.raises(MismatchError, match="two partitions of the same rows"):
        of("p1") + of("p2")


def test_a_stranger_cannot_be_subtracted_nor_anybody_twice():
    a, b = one("a"), one("b")
    with pytest.raises(MismatchError, match="client b cannot be subtracted"):
        a - b
    without = (a + b) - b
    with pytest.raises(MismatchError, match="or taken out"):
        without - b


def test_a_client_with_other_rows_cannot_be_subtracted():
    with pytest.raises(MismatchError, match=r"rows is 3 in these statistics, 4 in the sum"):
        (one("a") + one("b")) - one("b", rows=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phase": "other"}, "phase 'other'"),
        (
            {"context": replace(one().context, classes=("0", "x"))},
            "'x' only in these; '1' only in",
        ),
        ({"context": replace(one().context, space={"fraction_bits": 8})}, "fraction_bits is 8"),
        ({"arrays": {"gram": one().arrays["gram"]}}, "cross is None in these"),
    ],
)
def test_what_does_not_belong_together_is_refused_with_the_field(change, message):
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


def test_gammas_are_counted():
    clients = {ClientId(str(k)): Client(1, gamma=float(k % 2)) for k in range(5)}
    assert replace(one(), clients=clients).gammas == {0.0: 3, 1.0: 2}


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


@pytest.mark.parametrize("kind", ["i1", "u4", ">i4", "<i8", "f2", ">f4", "f8"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (0, 3)])
def test_equal_numbers_have_one_digest_in_every_type_that_holds_them(kind, shape):
    array = np.full(shape, 3)
    plain = np.int64 if np.dtype(kind).kind in "iu" else np.float64
    digest = numbers(array.astype(kind)).digest()
    assert digest == numbers(array.astype(plain)).digest()
    others = {numbers(np.full(s, 3, plain)).digest() for s in {(), (1,), (1, 1), (0,)} - {shape}}
    assert digest not in others


@pytest.mark.parametrize(
    "array",
    [
        np.array([True]),
        np.array([1 + 2j]),
        np.array([], complex),
        np.array([2**64 - 1], "u8"),
        np.array([1], "m8[s]"),
        np.array([0], "M8[s]"),
        np.array([1], object),
        np.array(["1"]),
        np.array([b"1"]),
        np.array([(1, 2)], "i4,i4"),
    ],
    ids=lambda a: str(a.dtype),
)
def test_what_is_no_number_of_a_canonical_type_has_no_digest(array):
    kind = "<i8" if array.dtype.kind in "um" else "<f8"
    for work in (
        numbers(array).digest,
        lambda: numbers(array) + numbers(array),
        lambda: Digest().array("a", array, kind),
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


def test_a_name_cannot_say_what_a_type_and_a_size_do():
    with pytest.raises(InvalidDataError, match="spaces"):
        replace(one(), arrays={"a <i8 1\n": np.array([1])}).digest()
