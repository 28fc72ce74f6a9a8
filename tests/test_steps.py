"""The three computations of a round, on objects; and what each head says of its arrays."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problems import same, sums

import afltool
from afltool.errors import InvalidDataError, MismatchError
from afltool.heads import OPTIONS, make_head
from afltool.heads.base import binding, statistics_of
from afltool.heads.evaluation import Evaluation
from afltool.heads.scaling import ScalingHead, ScalingOptions
from afltool.math.gram import LARGEST, FixedPoint
from afltool.values.statistics import Client, ClientId, Context, total_of

D, C, BITS = 6, 3, 14
DEEP = {"layers": 2, "feature_width": 8, "hidden_width": 8, "ridge": 10.0}
FIXED = {**DEEP, "compute": "fixed"}
WAYS = {
    "linear": {},
    "linear intercept": {"intercept": True},
    "discriminant": {},
    "discriminant nearest-mean": {"rule": "nearest-mean"},
    "discriminant naive-bayes": {"rule": "naive-bayes"},
    "discriminant qda": {"rule": "qda", "shrinkage": 0.5},
    "random-features": {"width": 8},
    "random-features fixed": {"width": 8, "compute": "fixed", "with_linear": True},
    "safle": {"experts": 4},
    "safle even": {"experts": 4, "thresholds": "range:-1:1", "with_linear": True},
    "softmax": {"rounds": 2},
    "softmax random": {"rounds": 2, "features": "random", "width": 8},
    "softmax float": {"rounds": 2, "features": "random", "width": 8, "compute": "float32"},
    "softmax safle": {"rounds": 2, "features": "safle", "experts": 4},
    "softmax hybrid": {"rounds": 2, "features": "safle", "experts": 4, "with_linear": True},
    "deepafl": DEEP,
    "deepafl incremental": {**DEEP, "incremental": True},
    "deepafl fixed": FIXED,
    "deepafl fixed without skip": {**FIXED, "no_skip": True},
    "deepafl fixed (88)": {**FIXED, "reconstruction": 0.3, "fixed_bits": 12},
    "deepafl fixed (89)": {**FIXED, "from_phi0": True},
}
ONLY_FIXED = {way for way in WAYS if "fixed" in way}


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


@pytest.mark.parametrize("bits", [BITS, None])
@pytest.mark.parametrize("way", WAYS)
def test_a_head_says_what_each_of_its_arrays_is(way, bits):
    """In every phase; all heads are here, and rows reach the largest numbers."""
    if bits is None and way in ONLY_FIXED:
        pytest.skip("fixed point takes int16 rows")
    assert {one.split()[0] for one in WAYS} == set(OPTIONS)
    X, y = rows()
    X = X if bits else (X.values * 2.0**-BITS).astype(np.float32)
    head, phases = make_head(way.split()[0], WAYS[way]).bind(D, C), []
    while head.phase() is not None:
        found = of(head, X, y)
        check_specs(head, found, bits)
        phases.append(head.phase())
        head = head.absorb(found)[0]
    assert phases


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("deepafl fixed")])
def test_bounds_of_a_row_are_not_far_above_what_a_row_does(way):
    """Each is reached to a factor of 2 by features and residuals at their limits."""
    from afltool.heads.deepafl.layers import LARGEST_RESIDUAL

    head = make_head("deepafl", WAYS[way]).bind(D, C)
    specs = head.array_specs(BITS)
    assert specs["gram"].per_row == 2**30
    most = {s.per_row for s in specs.values()}
    assert most <= {2**15, 2**30, 2**15 * LARGEST_RESIDUAL}


def test_one_row_of_the_largest_numbers_reaches_the_bounds_of_products():
    X, y = FixedPoint(np.full((1, D), LARGEST, np.int16), BITS), np.zeros(1, np.int64)
    for way in ("linear", "linear intercept", "discriminant naive-bayes", "discriminant qda"):
        head = make_head(way.split()[0], WAYS[way]).bind(D, C)
        for name, spec in head.array_specs(BITS).items():
            largest = np.abs(of(head, X, y).arrays[name]).max()
            assert 0.99 * spec.per_row < largest <= spec.per_row, (way, name)


def test_a_round_of_evaluation_and_of_scaling_say_theirs():
    X, y = rows()
    heads = []
    for way in ("linear", "softmax"):
        head = make_head(way, WAYS[way]).bind(D, C)
        while head.phase() is not None:
            head = head.absorb(of(head, X, y))[0]
        heads.append(head)
    counted = Evaluation.of(heads, None, ("x", "y"), 1)
    check_specs(counted, of(counted, X, y + C * (np.arange(len(y)) % 2)), BITS)
    scaling = ScalingHead(ScalingOptions()).bind(D, 1)
    real = np.where(np.arange(90)[:, None] % 7, X.values * 2.0**3, np.nan)
    check_specs(scaling, of(scaling, real, np.zeros(90, np.int64)), None)


def test_the_steps_are_the_methods_of_the_head():
    X, y = rows()
    head = make_head("linear").bind(D, C)
    one = of(head, X, y)
    assert one.digest() == sums(head, X, y).digest()
    assert one.context.head == binding(head)
    record = head.absorb(one)[1].round
    assert (record["phase"], record["rows"]) == ("gram", 90)


def test_a_total_is_the_sum_of_its_parts_less_what_leaves():
    X, y = rows()
    head = make_head("linear", {"ridge": 1.0}).bind(D, C)
    parts = [of(head, X[k::4], y[k::4], f"c{k}") for k in range(4)]
    named = [(f"file {k}", one) for k, one in enumerate(parts)]
    assert same(total_of(named), parts[0] + parts[1] + parts[2] + parts[3])
    assert same(total_of(named, named[:1]), total_of(reversed(named[1:])))
    assert same(total_of(iter(named), iter(named[1:])), parts[0])
    assert total_of(named).digest() == of(head, X, y).digest()


def test_an_error_says_which_part_it_is_of():
    X, y = rows()
    head = make_head("linear", {"ridge": 1.0}).bind(D, C)
    a, b = of(head, X[:40], y[:40], "a"), of(head, X[40:], y[40:], "b")
    other = replace(b, context=replace(b.context, classes=tuple("xyz")))
    with pytest.raises(MismatchError, match=r"^third: .*classes"):
        total_of([("first", a), ("third", other)])
    with pytest.raises(MismatchError, match=r"^again: .*given twice"):
        total_of([("first", a), ("again", a)])
    with pytest.raises(MismatchError, match=r"^leaver: .*cannot be subtracted"):
        total_of([("first", a)], [("leaver", b)])
    with pytest.raises(InvalidDataError, match="label"):
        of(head, X, y + C)


def test_nobody_else_computes():
    """Stages, runs and the estimator gather by `statistics_of` alone."""
    root = Path(afltool.__file__).parent
    calls = {
        path.relative_to(root).with_suffix("").as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "gather"
    }
    assert calls == {"heads/base", "testing"}
