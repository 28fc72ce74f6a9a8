"""What holds for every head with any options: one contract, by tables of heads.

Equal digests for every partition, order, block and thread (of real numbers: up to rounding), state
that goes out and comes back, what is carried from round to round, and what is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import HEADS

from afltool import parallel
from afltool.errors import AflError, InvalidDataError, MismatchError, NumericalError, UsageError
from afltool.heads import make_head, read_head
from afltool.heads.base import binding
from afltool.heads.checks import check_total, with_options
from afltool.heads.deepafl.options import NOT_FIXED, OF_BLOCKS
from afltool.math.gram import FixedPoint, real
from afltool.memory import Carried
from afltool.options.base import flag
from afltool.testing import check_head
from afltool.values.names import Phase
from afltool.values.statistics import Client, ClientId, Context

D, C, N, BITS = 6, 3, 180, 9
FIXED = [name for name, options in HEADS.items() if options.get("compute") == "fixed"]
every_head = pytest.mark.parametrize("name", HEADS)


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    values = rng.normal(size=(n, D)) + 1.5 * np.eye(C, D)[y]
    return FixedPoint(np.rint(values * 2.0**BITS).astype(np.int16), BITS), y


def begun(name):
    return make_head(name.split()[0], HEADS[name]).bind(D, C)


def stored(bits, data=None):
    """The rows in fixed point, or as float32."""
    X, y = rows() if data is None else data
    return (X if bits else real(X).astype(np.float32)), y


def step(head, blocks, who="a", carried=None):
    """The sums of rows, as of one client, and what the next round may start from."""
    store = Carried() if carried is None else carried
    sums, left = head.gather(blocks, {ClientId(who): Client(1)}, store)
    bits = BITS if isinstance(blocks[0][0], FixedPoint) else None
    space = {"fraction_bits": bits, "dim": D}
    return replace(sums, context=Context(space, tuple("abc"), binding(head))), left


def cut(X, y, *ends):
    return [(X[a:b], y[a:b]) for a, b in zip((0, *ends), (*ends, len(y)), strict=True)]


def trained(name, split=lambda X, y: [[(X, y)]], bits=BITS, threads=1):
    """The heads after each round, of clients that hold some blocks each."""
    X, y = stored(bits)
    head, heads = begun(name), []
    with parallel.thread_limit(threads):
        while head.phase() is not None:
            parts = [step(head, blocks, str(k))[0] for k, blocks in enumerate(split(X, y))]
            total = sum(parts[1:], parts[0])
            if "incremental" in name:  # it knows its clients again
                total = replace(total, clients={ClientId("all"): Client(len(y))})
            check_total(head, total)
            head = head.absorb(total)[0]
            heads.append(head)
    return heads


def by_threes(X, y):
    """Clients with every third row, in blocks of other lengths, and one that has none."""
    return [[(X[:0], y[:0])], *(cut(X[np.arange(k, N, 3)], y[k::3], 7 + k, 30) for k in (2, 0, 1))]


@every_head
def test_every_partition_order_block_and_thread_gives_the_same_heads(name):
    whole, X = trained(name), rows(50, 1)[0]
    found = trained(name, by_threes, threads=3)
    assert [one.phase() for one in found] == [one.phase() for one in whole]
    if all(one.exact for one in begun(name).array_specs(BITS).values()):
        assert [one.digest() for one in found] == [one.digest() for one in whole]
    ours, theirs = (heads[-1].decision_function(X) for heads in (found, whole))
    assert np.allclose(ours, theirs, rtol=0, atol=1e-7 * np.abs(theirs).max())


@every_head
def test_the_bits_of_any_rows_do_not_depend_on_the_number_of_threads(name):
    """Reals are added up in the order of the rows: of many blocks, of no row, and of one row."""

    def digests(bits, part, threads):
        at = (0, 40, 41, 90, 90, 140, 170)
        try:
            heads = trained(name, lambda X, y: [cut(X[part], y[part], *at)], bits, threads)
        except AflError as error:
            return str(error)
        return [head.digest() for head in heads]

    whole, none, one = slice(0, N), slice(0, 0), slice(7, 8)
    reals = [] if name in FIXED else [(None, whole)]
    for bits, part in [(BITS, whole), (BITS, none), (BITS, one), *reals]:
        found = digests(bits, part, 1)
        assert found == digests(bits, part, 4)
        assert isinstance(found, list) or part is not whole, found


@every_head
def test_float_features_give_the_same_up_to_rounding(name):
    if name in FIXED:
        with pytest.raises(UsageError, match="--compute fixed needs int16 features"):
            trained(name, bits=None)
        return
    X = rows()[0]
    wanted, found = (trained(name, bits=bits)[-1].decision_function(X) for bits in (BITS, None))
    within = 2e-2 if name == "softmax random" else 1e-4 if name.startswith("soft") else 1e-7
    assert np.allclose(found, wanted, rtol=0, atol=within * np.abs(wanted).max())


@every_head
def test_state_goes_out_and_comes_back_after_every_round(name):
    X = rows(50, 1)[0]
    for head in trained(name):
        fresh = begun(name).restore(head.phase(), head.state_dict()).bind(D, C)
        assert (fresh.digest(), fresh.phase()) == (head.digest(), head.phase())
        for (_, a), (_, b) in zip(head.round_scores(X), fresh.round_scores(X), strict=True):
            assert np.array_equal(a, b)
        with pytest.raises(InvalidDataError, match="a head of phase 'other' holds"):
            begun(name).restore(Phase("other"), head.state_dict())
    for array, a in head.state_dict().items():
        longer = {**head.state_dict(), array: np.concatenate([a, a[-1:]])}
        with pytest.raises(InvalidDataError):
            make_head(name.split()[0], HEADS[name]).restore(head.phase(), longer).bind(D, C)
    with pytest.raises(UsageError, match="solved: there is nothing left to gather"):
        head.gather([rows(3)])
    with pytest.raises(UsageError, match="not solved yet"):
        begun(name).decision_function(X)


@every_head
def test_what_is_carried_gives_the_sums_of_fresh_rows_and_phases_follow_the_schedule(name):
    blocks, head, carried, phases = cut(*rows(), 50, 51), begun(name), Carried(), []
    while head.phase() is not None:
        phases.append(head.phase())
        fresh = step(head, blocks)[0]
        sums, carried = step(head, blocks, carried=carried)
        assert sums.digest() == fresh.digest()
        specs = head.array_specs(BITS)
        assert {k: a.shape for k, a in sums.arrays.items()} == {
            k: s.shape for k, s in specs.items()
        }
        head = head.absorb(sums)[0]
    assert (*phases,) == begun(name).schedule()


@every_head
def test_no_rows_and_sums_of_another_phase_are_refused(name):
    head = begun(name)
    X, y = rows()
    with pytest.raises(InvalidDataError, match="has 0 rows: there is nothing to solve"):
        head.absorb(step(head, [(X[:0], y[:0])])[0])
    with pytest.raises(UsageError, match="no blocks to gather"):
        head.gather([])
    with pytest.raises(InvalidDataError, match="label 3; with 3 classes"):
        head.gather([(X, y + 1)])
    good = step(head, [(X, y)])[0]
    for array, a in good.arrays.items():
        bad = replace(good, arrays={**good.arrays, array: np.concatenate([a, a])})
        with pytest.raises(InvalidDataError, match=f"'{array}' is .*, expected"):
            check_total(head, bad)
    other = replace(good, phase=Phase("other"))
    with pytest.raises(MismatchError, match="the total is of 'other'"):
        head.absorb(other)
    with pytest.raises(UsageError, match="bind the head"):
        make_head(name.split()[0], HEADS[name]).gather([(X, y)])
    for dim, classes in ((D + 1, C), (D, C + 1)):
        with pytest.raises(MismatchError, match="the head is made for"):
            head.bind(dim, classes)
    for dim, classes in ((0, C), (D, 0)):
        with pytest.raises(InvalidDataError, match="at least one; found 0"):
            make_head(name.split()[0], HEADS[name]).bind(dim, classes)


@pytest.mark.parametrize("name", ["random-features fixed", "safle hybrid", "deepafl incremental"])
def test_what_is_asked_of_plug_ins_holds_through_files(name):
    """Sums of clients in any order, no head changed by what it learns, files, predictions."""
    check_head(name.split()[0], HEADS[name])


@every_head
def test_what_does_not_fit_into_memory_is_refused_before_rows_are_read(name, free_memory):
    total, _ = step(begun(name), [rows()])
    free_memory(100)
    with pytest.raises(NumericalError, match=r"needs about .* GB of memory and"):
        begun(name).gather(iter(()))
    if name in ("linear", "random-features", "safle range", "softmax", "deepafl", "deepafl fixed"):
        with pytest.raises(NumericalError, match=r"needs about .* GB of memory and"):
            begun(name).absorb(total)


REFUSED = [
    *(("linear", {"ridge": bad}, "a ridge is") for bad in ("-1", "nan", "x")),
    *(("linear", {"ridge": bad}, "LO:HI:COUNT")
      for bad in ("1:2", "2:1:5", "0:1:5", "1:2:1", "a:b:c")),
    ("linear", {"gamma": -1.0}, "--gamma"),
    ("linear", {"layers": 3}, "no option 'layers'"),
    ("linear", {"standardize": True, "keep_gamma": True}, "--keep-gamma needs the original"),
    ("liner", {}, "no head 'liner'"),
    ("random-features", {"compute": "float16"}, "--compute is float32, float64, fixed"),
    ("discriminant", {"rule": "nearest-mean", "shrinkage": 0.1}, "takes no --shrinkage"),
    ("discriminant", {"rule": "fed3r", "ridge": "auto"}, "a ridge is a number ≥ 0; found"),
    ("safle", {"experts": 9, "every_digit": True}, "--every-digit is not used with --experts"),
    ("safle", {"group_size": 17}, r"tables of 2\^17 rows"),
    ("safle", {"thresholds": "range:2:1"}, "LO < HI"),
    ("safle", {"thresholds": "train.h5"}, "--thresholds is federated, or range:LO:HI with"),
    ("softmax", {"lbfgs": True}, "'lbfgs' no longer; found"),
    ("softmax", {"width": 9}, "--width belongs to --features random"),
    ("softmax", {"experts": 9}, "'experts' no longer; found 9"),
    ("softmax", {"features": "safle"}, "--features is raw, random; found 'safle'"),
    ("deepafl", {"layers": -1}, "--layers is at least 0; found -1"),
    ("deepafl", {"preset": "paper"}, "--preset paper is chosen by the data set"),
    ("deepafl", {"seed": 2**64}, r"--seed is 0 to 2\^64 − 1"),
    ("deepafl", {"hidden_width": 5, "identity_omega": True}, "--identity-omega needs equal"),
    ("deepafl", {"random_omega": True, "identity_omega": True}, "--identity-omega is not used"),
    ("deepafl", {"compute": "float32", "fixed_bits": 10}, "only with --compute fixed"),
    ("deepafl", {"label_encoding": True}, "--label-encoding is for --deepening cascade or"),
    ("deepafl", {"reconstruction": 0.5, "no_skip": True}, "--reconstruction is not used with"),
    *[("deepafl", {name: {"reconstruction": 0.5, "deepening": "cascade"}.get(name, True),
                   "compute": "fixed"}, f"{flag(name)} cannot be combined with --compute fixed")
      for name in NOT_FIXED],
    *[("deepafl", {name: 0.5 if name == "reconstruction" else True, "deepening": "cascade"},
       "only with --deepening residual; found cascade") for name in OF_BLOCKS],
]  # fmt: skip


@pytest.mark.parametrize("head", sorted({name for name, *_ in REFUSED}))
def test_options_that_cannot_be_are_refused_by_name(head):
    for name, options, message in REFUSED:
        if name == head:
            with pytest.raises(UsageError, match=message):
                make_head(name, options)


def test_options_that_sums_depend_on_are_fixed_before_the_first_round():
    for name, fixed in (("linear", "gamma"), ("softmax", "penalty"), ("deepafl", "ridge")):
        with pytest.raises(UsageError, match=f"fixes --{fixed} before its first round"):
            with_options(make_head(name), **{fixed: 2.0})
        with pytest.raises(UsageError, match="no option --linear-rid; `solve` can change"):
            with_options(make_head(name), linear_rid=1.0)


@pytest.mark.parametrize("name", HEADS)
def test_options_mean_the_same_given_or_left_out(name):
    options = begun(name).options
    again = read_head(name.split()[0], options.as_dict())
    assert again.options == options
    assert again.bind(D, C).digest() == begun(name).digest()
