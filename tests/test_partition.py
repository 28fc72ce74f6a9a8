"""Laws of partitions, oracles for the published splits, golden digests."""

from __future__ import annotations

import doctest
import hashlib
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afltool import partitions
from afltool.errors import AflError, InvalidDataError, NumericalError, UsageError
from afltool.options.partition import SCHEMES, PartitionOptions
from afltool.partitions import dealing, mean_total_variation, summary
from afltool.partitions.dealing import canonical_order


def assign(*args: Any, attribute: Any = None, **options: Any) -> Any:
    return dealing.assign(*args, PartitionOptions(**options), attribute=attribute)


SIMULATED: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "shards": {"shards_per_client": 2},
    "dirichlet-pfl": {"alpha": 0.3, "min_size": 0},
}  # pathological-pfl refuses few rows: see its own tests
BY_SITE = {"scheme": "by-attribute", "table": "sites.csv", "column": "site"}
BY_FILE = {"scheme": "file", "table": "clients.csv"}
laws = settings(max_examples=40, deadline=None, derandomize=True)


def row_ids(n: int) -> np.ndarray:
    return np.array([f"train/{i:06d}" for i in range(n)], "S")


def balanced(n: int, n_classes: int) -> np.ndarray:
    """Class c is rows c, c + C, c + 2C … — not sorted by label."""
    return np.arange(n) % n_classes


def of_balanced(n: int, n_classes: int, **options: Any) -> Any:
    return assign(row_ids(n), balanced(n, n_classes), n_classes, **options)


def digest(client: np.ndarray) -> str:
    return hashlib.sha256(client.astype("<i4").tobytes()).hexdigest()[:16]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, dict[str, Any]]:
    """Labels, the number of classes and options: empty classes and K > n among them."""
    n_classes = draw(st.integers(1, 5))
    labels = np.array(draw(st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=40)))
    scheme = draw(st.sampled_from(sorted(SIMULATED)))
    options = {**SIMULATED[scheme], "scheme": scheme, "clients": draw(st.integers(1, 60))}
    if "alpha" in options:
        options["alpha"] = draw(st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e3, 1e6]))
    if scheme == "dirichlet-pfl":
        options["top_up"] = draw(st.booleans())
    options["seed"] = draw(st.integers(0, 2**32 - 1))
    return labels, n_classes, options


# -- laws ------------------------------------------------------------------------------------------


@laws
@given(case=cases())
def test_disjoint_and_complete(case: tuple[np.ndarray, int, dict[str, Any]]) -> None:
    labels, n_classes, options = case
    result = assign(row_ids(labels.size), labels, n_classes, **options)
    assert result.client.dtype == np.int32
    assert result.client.shape == labels.shape
    assert result.names == tuple(map(str, range(options["clients"])))
    assert 0 <= result.client.min() <= result.client.max() < options["clients"]
    counts = summary(result.client, result.effective_labels, options["clients"], n_classes).counts
    assert np.array_equal(counts.sum(axis=0), np.bincount(labels, minlength=n_classes))


ANY_NUMBER = st.sampled_from([-1, 0, 1, 2, 3, 7, 10, 60, 5_000, 2**31 - 1, 2**31])
ANY_ALPHA = st.sampled_from(
    [math.nan, -math.inf, -1.0, 0.0, 1e-300, 1e-100, 1e-5, 1e-3, 0.01, 1.0, 1e100, 1e300, math.inf]
)


@pytest.mark.filterwarnings("error")
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_options_give_a_client_to_each_row_or_are_refused(data: st.DataObject) -> None:
    n, n_classes = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 60))
    labels = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)))
    scheme = data.draw(st.sampled_from(sorted(SCHEMES.data)))
    needs, may = SCHEMES[scheme]
    every: dict[str, st.SearchStrategy[Any]] = {
        "clients": ANY_NUMBER,
        "shards_per_client": ANY_NUMBER,
        "min_size": ANY_NUMBER,
        "alpha": ANY_ALPHA,
        "top_up": st.booleans(),
    }
    chosen = sorted((needs | {one for one in may if data.draw(st.booleans())}) & every.keys())
    options = {name: data.draw(every[name]) for name in chosen}
    options |= {"scheme": scheme, "seed": data.draw(st.integers(0, 2**32))}
    if "table" in needs:
        options |= {"table": "sites.csv", "column": "site"}
        name = st.sampled_from(["0", "1", "10", "site A", "", None])
        options["attribute"] = data.draw(st.lists(name, min_size=n, max_size=n))
    try:
        result = assign(row_ids(n), labels, n_classes, **options)
    except AflError:
        return
    assert result.client.shape == (n,)
    assert 0 <= result.client.min() <= result.client.max() < len(result.names)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("alpha", "seed"), [(1e-3, 51), (2e-3, 261), (1e-3, 0), (1e-2, 0)])
def test_gammas_that_add_up_to_a_subnormal_number_deal_every_row(alpha: float, seed: int) -> None:
    result = of_balanced(1000, 10, scheme="dirichlet-pfl", clients=2, alpha=alpha,
        min_size=0, seed=seed,
    )  # fmt: skip
    assert result.sizes().sum() == 1000


@laws
@given(case=cases(), shuffle=st.randoms(use_true_random=False))
def test_order_stable(case: tuple[np.ndarray, int, dict[str, Any]], shuffle: Any) -> None:
    labels, n_classes, options = case
    extras = {"label_noise": 0.3 if n_classes > 1 else 0.0}
    ids, order = row_ids(labels.size), list(range(labels.size))
    shuffle.shuffle(order)
    straight = assign(ids, labels, n_classes, **options, **extras)
    mixed = assign(ids[order], labels[order], n_classes, **options, **extras)
    assert np.array_equal(mixed.client, straight.client[order])
    assert np.array_equal(mixed.effective_labels, straight.effective_labels[order])


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "shards", "dirichlet-pfl"])
def test_seed_matters(scheme: str) -> None:
    draws = [
        of_balanced(200, 5, scheme=scheme, clients=9, seed=seed, **extra)
        for seed in (0, 1)
        for extra in [SIMULATED[scheme]]
    ]
    assert not np.array_equal(draws[0].client, draws[1].client)


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for scheme, options in SIMULATED.items():
        of_balanced(60, 3, scheme=scheme, clients=4, **options)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("scheme", sorted(SIMULATED))
def test_purposes_have_streams_of_their_own(scheme: str) -> None:
    args = (row_ids(90), balanced(90, 3), 3)
    plain = assign(*args, scheme=scheme, clients=6, **SIMULATED[scheme])
    both = assign(
        *args, scheme=scheme, clients=6, held_out=0.3, label_noise=0.2, **SIMULATED[scheme]
    )
    noisy = assign(*args, scheme=scheme, clients=6, label_noise=0.2, **SIMULATED[scheme])
    assert np.array_equal(plain.client, both.client)
    assert np.array_equal(noisy.effective_labels, both.effective_labels)
    assert np.array_equal(plain.effective_labels, args[1])


def test_canonical_order_names_an_id_that_occurs_twice() -> None:
    assert canonical_order(np.array([b"b", b"ab", b"a"])).tolist() == [2, 1, 0]
    with pytest.raises(InvalidDataError, match="b'x' occurs more than once; 2 of 4"):
        canonical_order(np.array([b"x", b"y", b"x", b"x"]))
    with pytest.raises(InvalidDataError, match="byte string, found shape"):
        canonical_order(np.array(["a"]))


# -- extremes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-100, 1e-6, 1e-3, 1.0, 1e6, 1e100])
@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-pfl"])
def test_extreme_alpha_gives_whole_numbers_not_nan(scheme: str, alpha: float) -> None:
    n, n_classes, clients = 3000, 10, 30
    labels = balanced(n, n_classes)
    result = assign(
        row_ids(n), labels, n_classes, scheme=scheme, clients=clients, alpha=alpha, min_size=0
    )
    found = summary(result.client, labels, clients, n_classes)
    assert found.counts.sum() == n
    if alpha <= 1e-6:
        assert np.array_equal(np.count_nonzero(found.counts, axis=0), np.ones(n_classes))
    if alpha >= 1e6 and scheme == "dirichlet":
        assert np.abs(found.counts - n / n_classes / clients).max() <= 1


@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-pfl"])
def test_min_size_is_reached_or_refused_with_alpha_clients_and_chance(scheme: str) -> None:
    args = (row_ids(5000), balanced(5000, 10), 10)
    result = assign(*args, scheme=scheme, clients=20, alpha=0.5, min_size=20)
    assert np.bincount(result.client, minlength=20).min() >= 20
    start = time.process_time()
    with pytest.raises(
        NumericalError, match=r"0 of 1000 draws at α = 0\.01 and K = 100 clients.*smallest client 0"
    ):
        assign(*args, scheme=scheme, clients=100, alpha=0.01, min_size=1)
    assert time.process_time() - start < 10
    with pytest.raises(UsageError, match="need 6000 rows, found 5000"):
        assign(*args, scheme=scheme, clients=100, alpha=1.0, min_size=60)


# -- what each scheme promises ---------------------------------------------------------------------


def test_iid_is_dealt_evenly_from_shuffled_rows() -> None:
    labels = np.sort(balanced(1000, 4))  # contiguous blocks of these would hold one class each
    result = assign(row_ids(1000), labels, 4, scheme="iid", clients=7)
    found = summary(result.client, labels, 7, 4)
    assert found.max_rows - found.min_rows <= 1
    assert (found.classes_per_client == 4).all()
    assert found.mean_total_variation < 0.1


def test_shards_give_at_most_s_classes_where_class_sizes_allow() -> None:
    for n, n_classes, clients, s in ((8000, 10, 100, 2), (8000, 10, 100, 4), (6000, 100, 60, 5)):
        labels = balanced(n, n_classes)
        assert (n // n_classes) % (n // (clients * s)) == 0  # the premise: whole shards per class
        result = assign(
            row_ids(n), labels, n_classes, scheme="shards", clients=clients, shards_per_client=s
        )
        found = summary(result.client, labels, clients, n_classes)
        assert found.classes_per_client.max() == s
        assert found.min_rows == found.max_rows == n // clients


def test_shards_differ_by_one_row_where_they_do_not_fit() -> None:
    result = of_balanced(1003, 10, scheme="shards", clients=20, shards_per_client=3)
    rows = np.bincount(result.client)
    assert rows.max() - rows.min() <= 3


def mean_entropy(counts: np.ndarray) -> float:
    share = counts[counts.sum(axis=1) > 0]
    share = share / share.sum(axis=1, keepdims=True)
    return float(-(share * np.log(np.maximum(share, 1e-300))).sum(axis=1).mean())


@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-pfl"])
def test_client_entropy_falls_and_total_variation_rises_as_alpha_falls(scheme: str) -> None:
    labels = balanced(20_000, 10)
    entropy, variation = [], []
    for alpha in (100.0, 10.0, 1.0, 0.1, 0.01):
        result = assign(
            row_ids(20_000), labels, 10, scheme=scheme, clients=50, alpha=alpha, min_size=0
        )
        counts = summary(result.client, labels, 50, 10).counts
        entropy.append(mean_entropy(counts))
        variation.append(mean_total_variation(counts))
    assert (np.diff(entropy) < -0.01).all()
    assert (np.diff(variation) > 0.01).all()


def test_dirichlet_rounding_favours_no_client() -> None:
    # Floors alone would give the last of five clients half a row of each class more: 1,000 rows.
    result = of_balanced(6000, 2000, scheme="dirichlet", clients=5, alpha=1.0)
    assert np.abs(np.bincount(result.client) - 1200).max() < 150


def test_by_attribute_has_one_client_per_value() -> None:
    ids, labels = row_ids(6), np.array([0, 1, 0, 1, 0, 1])
    text = assign(ids, labels, 2, **BY_SITE, attribute=list("bacbac"))
    assert text.names == ("a", "b", "c")
    assert text.client.tolist() == [1, 0, 2, 1, 0, 2]
    numbers = ["10", "9", "2", "10", "9", "2"]
    result = assign(ids[::-1], labels, 2, **BY_SITE, attribute=numbers)
    assert result.names == ("2", "9", "10")
    assert result.client.tolist() == [2, 1, 0, 2, 1, 0]


def test_names_are_texts_to_the_last_character() -> None:
    ids, labels = row_ids(6), np.zeros(6, int)
    names = ["1", "01", "1 ", "1\0", "NA", "9" * 5000]
    result = assign(ids, labels, 1, **BY_SITE, attribute=names)
    assert [result.names[k] for k in result.client] == names
    assert len(result.names) == 6
    with pytest.raises(InvalidDataError, match="not Unicode text"):
        assign(ids, labels, 1, **BY_SITE, attribute=["\ud800", *"abcde"])


@pytest.mark.parametrize("nothing", ["", None])
def test_rows_without_an_attribute_are_refused_with_their_number(nothing: str | None) -> None:
    with pytest.raises(InvalidDataError, match="each of 6 rows, found 3 without one"):
        assign(row_ids(6), np.zeros(6, int), 1, **BY_SITE, attribute=["a", nothing] * 3)


def test_a_file_restores_a_partition_with_its_empty_clients() -> None:
    ids, labels = row_ids(30), balanced(30, 3)
    made = assign(ids, labels, 3, scheme="dirichlet", clients=40, alpha=0.1, seed=5)
    column = [made.names[k] for k in made.client]
    read = assign(ids[::-1], labels[::-1], 3, **BY_FILE, attribute=column[::-1], clients=40)
    assert read.names == made.names
    assert np.array_equal(read.client[::-1], made.client)
    loose = assign(ids, labels, 3, **BY_FILE, attribute=column)
    assert loose.names == tuple(map(str, np.unique(made.client)))
    with pytest.raises(InvalidDataError, match="client names 0 to 1, found 2 others, such as '2'"):
        assign(ids[:4], labels[:4], 3, **BY_FILE, attribute=list("0123"), clients=2)


# -- label noise and held-out clients --------------------------------------------------------------


def test_label_noise_flips_a_share_uniformly_and_never_to_itself() -> None:
    n, n_classes = 8000, 5
    labels = balanced(n, n_classes)
    result = assign(row_ids(n), labels, n_classes, scheme="iid", clients=3, label_noise=0.25)
    flipped = result.effective_labels != labels
    assert flipped.sum() == 2000
    steps = np.bincount(
        (result.effective_labels - labels)[flipped] % n_classes, minlength=n_classes
    )
    assert steps[0] == 0
    assert np.abs(steps[1:] - 500).max() < 5 * math.sqrt(500)
    assert result.effective_labels.min() == 0
    assert result.effective_labels.max() == n_classes - 1
    with pytest.raises(UsageError, match="at least 2 classes, found 1"):
        assign(row_ids(3), np.zeros(3, int), 1, scheme="iid", clients=2, label_noise=0.1)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.001, 1), (0.1, 2), (0.999, 19)])
def test_held_out_marks_at_least_one_client_and_never_all(share: float, expected: int) -> None:
    result = of_balanced(100, 2, scheme="iid", clients=20, held_out=share)
    assert result.held_out.dtype == bool
    assert result.held_out.sum() == expected


def test_held_out_clients_have_rows() -> None:
    result = of_balanced(8, 2, scheme="dirichlet", clients=500, alpha=1.0, held_out=0.5)
    full = np.bincount(result.client, minlength=500) > 0
    assert not (result.held_out & ~full).any()
    assert result.held_out.sum() == int(full.sum() / 2 + 0.5)
    with pytest.raises(UsageError, match="at least 2 clients with rows, found 1"):
        of_balanced(8, 2, scheme="iid", clients=1, held_out=0.5)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "lda"}, "--scheme is iid, dirichlet.*found 'lda'"),
        ({"scheme": "iid"}, "iid is given without --clients"),
        ({"scheme": "iid", "clients": 0}, "--clients is 1 to .*; found 0"),
        ({"scheme": "iid", "clients": 2, "alpha": 1.0}, "does not take --alpha"),
        ({"scheme": "iid", "clients": 2, "min_size": 1}, "does not take --min-size"),
        ({"scheme": "iid", "clients": 2, "seed": -1}, "--seed is 0 to .*; found -1"),
        ({"scheme": "iid", "clients": 2, "held_out": 1.0}, "--held-out is .*below 1; found 1.0"),
        ({"scheme": "iid", "clients": 2, "label_noise": -0.1}, "--label-noise is .*found -0.1"),
        ({"scheme": "dirichlet", "clients": 2}, "is given without --alpha.*have --min-size"),
        ({"scheme": "dirichlet", "clients": 2, "alpha": 0.0}, "--alpha is 1e-100 to .*found 0.0"),
        (
            {"scheme": "dirichlet", "clients": 2, "alpha": math.nan},
            "--alpha is 1e-100 to .*found nan",
        ),
        ({"scheme": "dirichlet", "clients": 2, "alpha": 1.0, "top_up": True}, "not take --top-up"),
        ({"scheme": "shards", "clients": 2}, "is given without --shards-per-client"),
        ({"scheme": "by-attribute"}, "is given without --column, --table"),
        (
            {"scheme": "dirichlet-pfl", "clients": 1, "alpha": 1.0, "seed": 2**32},
            "--seed .*below 2",
        ),
        ({"scheme": "dirichlet-pfl", "clients": 2, "alpha": 1.0}, "need 20 rows, found 6"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_balanced(6, 2, **options)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, 2]), "0 to 1 for 2 classes, found 0 to 2"),
        (np.array([0, -1, 1]), "found -1 to 1"),
        (np.array([0, 1]), "labels: expected 3, one per row id, found 2"),
        (np.array([0.0, 1.0, 1.0]), "expected integers from 0 to 1.*of float64"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidDataError, match=message):
        assign(row_ids(3), labels, 2, scheme="iid", clients=2)


def test_pathological_refuses_what_the_published_rule_cannot_do() -> None:
    ids, labels = row_ids(40), balanced(40, 5)
    with pytest.raises(UsageError, match="no client has classes left for class 4 of 5"):
        assign(ids, labels, 5, scheme="pathological-pfl", clients=4, shards_per_client=1)
    with pytest.raises(UsageError, match=r"class 0 has 8 rows for 20 clients.*\[2, 0\)"):
        assign(ids, labels, 5, scheme="pathological-pfl", clients=20)


def test_a_lost_row_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = np.full(4, -1, np.int32), ("0", "1")
    monkeypatch.setattr(dealing, "scheme", lambda _: lambda y, options: lost)
    with pytest.raises(NumericalError, match="found 4 rows without one"):
        of_balanced(4, 2, scheme="iid", clients=2)


# -- summary ---------------------------------------------------------------------------------------


def test_summary_of_three_clients_by_hand() -> None:
    client, labels = np.array([0, 0, 0, 2]), np.array([0, 0, 1, 1])
    found = summary(client, labels, 3, 2)
    assert found.counts.tolist() == [[2, 1], [0, 0], [0, 1]]
    assert found.counts.dtype == np.int64
    assert found.classes_per_client.tolist() == [2, 0, 1]
    assert (found.empty_clients, found.min_rows, found.median_rows, found.max_rows) == (1, 0, 1, 3)
    assert found.mean_total_variation == pytest.approx((1 / 6 + 1 / 2) / 2)


def test_total_variation_ends() -> None:
    assert mean_total_variation(np.array([[3, 6], [1, 2], [0, 0]])) == 0
    assert mean_total_variation(np.eye(100, dtype=int)) == pytest.approx(0.99)
    assert mean_total_variation(np.zeros((3, 2), int)) == 0


def test_docstring_examples() -> None:
    assert sum(doctest.testmod(m).failed for m in (dealing, partitions)) == 0


# -- oracles: the published splits, row by row, from their description -----------------------------


def oracle_dirichlet(
    labels: list[int], n_classes: int, clients: int, alpha: float, least: int, seed: int, fill: bool
) -> list[list[int]]:
    """Plain lists; NumPy's legacy generator only. ``fill`` is DeepAFL's filling of the smallest."""
    rng = np.random.RandomState(seed)
    while True:
        owned: list[list[int]] = [[] for _ in range(clients)]
        for c in range(n_classes):
            members = np.array([i for i, y in enumerate(labels) if y == c])
            rng.shuffle(members)
            share = rng.dirichlet([alpha] * clients)
            for k in range(clients):
                if len(owned[k]) >= len(labels) / clients:
                    share[k] = 0.0
            edges = np.floor(np.cumsum(share / share.sum()) * len(members)).astype(int)
            first = 0
            for k in range(clients):
                last = len(members) if k == clients - 1 else int(edges[k])
                owned[k].extend(int(i) for i in members[first:last])
                first = last
            if fill:
                fill_the_smallest(owned, least)
        if min(len(rows) for rows in owned) >= least:
            return owned


def fill_the_smallest(owned: list[list[int]], least: int) -> None:
    sizes = [len(rows) for rows in owned]
    gap, largest = least - min(sizes), sizes.index(max(sizes))
    for k in [k for k, size in enumerate(sizes) if size == min(sizes) and gap > 0]:
        moved = [owned[largest].pop(0) for _ in range(min(gap, len(owned[largest])))]
        owned[k].extend(moved)


def oracle_pathological(
    labels: list[int], n_classes: int, clients: int, s: int, seed: int
) -> list[list[int]]:
    rng = np.random.RandomState(seed)
    owned: list[list[int]] = [[] for _ in range(clients)]
    taken = [0] * clients
    for c in range(n_classes):
        members = [i for i, y in enumerate(labels) if y == c]
        takers = [k for k in range(clients) if taken[k] < s][: math.ceil(clients / n_classes * s)]
        share = len(members) / len(takers)
        low, high = int(max(share / 10, 10 / n_classes)), int(share)
        cut = [int(size) for size in rng.randint(low, high, len(takers) - 1)]
        for k, size in zip(takers, [*cut, len(members) - sum(cut)], strict=True):
            owned[k].extend(members[:size])
            members = members[size:]
            taken[k] += 1
    return owned


def as_lists(client: np.ndarray, clients: int) -> list[list[int]]:
    return [np.flatnonzero(client == k).tolist() for k in range(clients)]


@pytest.mark.parametrize("fill", [False, True], ids=["AFL", "DeepAFL"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 10.0])
@pytest.mark.parametrize(("n", "n_classes", "clients"), [(600, 10, 6), (1000, 7, 20)])
def test_dirichlet_pfl_equals_its_oracle(
    n: int, n_classes: int, clients: int, alpha: float, fill: bool
) -> None:
    labels = np.random.default_rng(n).integers(0, n_classes, n)
    least = 10 if fill or alpha >= 0.5 else 1
    for seed in (0, 1):
        oracle = oracle_dirichlet(labels.tolist(), n_classes, clients, alpha, least, seed, fill)
        result = assign(
            row_ids(n),
            labels,
            n_classes,
            scheme="dirichlet-pfl",
            clients=clients,
            alpha=alpha,
            min_size=least,
            seed=seed,
            top_up=fill,
        )
        assert as_lists(result.client, clients) == [sorted(rows) for rows in oracle]


@pytest.mark.parametrize(
    ("n", "n_classes", "clients", "s"), [(5000, 10, 20, 2), (3000, 7, 13, 3), (4000, 10, 10, 10)]
)
def test_pathological_pfl_equals_its_oracle(n: int, n_classes: int, clients: int, s: int) -> None:
    labels = np.random.default_rng(n).integers(0, n_classes, n)
    for seed in (0, 1):
        oracle = oracle_pathological(labels.tolist(), n_classes, clients, s, seed)
        result = assign(
            row_ids(n),
            labels,
            n_classes,
            scheme="pathological-pfl",
            clients=clients,
            shards_per_client=s,
            seed=seed,
        )
        assert as_lists(result.client, clients) == [sorted(rows) for rows in oracle]


def test_pathological_depends_on_the_seed_and_not_on_the_order() -> None:
    ids, labels = row_ids(400), balanced(400, 4)
    order = np.random.default_rng(0).permutation(400)
    more = {"scheme": "pathological-pfl", "clients": 8, "shards_per_client": 2}
    first = assign(ids, labels, 4, **more)
    mixed = assign(ids[order], labels[order], 4, **more)
    assert np.array_equal(mixed.client, first.client[order])
    assert not np.array_equal(first.client, assign(ids, labels, 4, seed=1, **more).client)


def test_pathological_defaults_are_the_published_ones() -> None:
    args = (row_ids(5000), balanced(5000, 20), 20)
    default = assign(*args, scheme="pathological-pfl", clients=10)
    stated = assign(*args, scheme="pathological-pfl", clients=10, shards_per_client=10, min_size=10)
    assert np.array_equal(default.client, stated.client)
    assert (summary(default.client, args[1], 10, 20).classes_per_client == 10).all()


def test_published_iid_gives_the_last_client_about_half_of_all_rows() -> None:
    result = of_balanced(50_000, 10, scheme="pathological-pfl", clients=100)
    assert 0.4 < np.mean(result.client == 99) < 0.5


# -- golden digests: the same on every platform and in every release -------------------------------

SITES = [str(i % 17) for i in range(3000)]
GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "iid": ({"clients": 30}, "fb424bbd761ae171"),
    "dirichlet": ({"clients": 30, "alpha": 0.1}, "29e6992dd987922f"),
    "dirichlet min-size": ({"clients": 30, "alpha": 0.3, "min_size": 9}, "37bc74c27fce0663"),
    "shards": ({"clients": 30, "shards_per_client": 2}, "1e5f34182952bcf7"),
    "by-attribute": ({**BY_SITE, "attribute": SITES}, "4abfa3b5eae32eae"),
    "file": ({**BY_FILE, "attribute": SITES, "clients": 20}, "4abfa3b5eae32eae"),
    "dirichlet-pfl": ({"clients": 30, "alpha": 0.5}, "3847cc78a4f8c9ec"),
    "dirichlet-pfl topped up": ({"clients": 30, "alpha": 0.1, "top_up": True}, "3fd2ff887c5c72cb"),
    "pathological-pfl": ({"clients": 30, "shards_per_client": 4}, "6b56e21e51110179"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_digest(name: str) -> None:
    options, expected = GOLDEN[name]
    options = {"scheme": name.split()[0], **options}
    result = of_balanced(3000, 12, **options)
    assert digest(result.client) == expected


def test_golden_digest_of_noise_and_held_out() -> None:
    result = of_balanced(3000, 12, scheme="iid", clients=30, held_out=0.1, label_noise=0.1)
    assert digest(result.effective_labels) == "645a6830e23f11a1"
    assert np.flatnonzero(result.held_out).tolist() == [1, 17, 29]


def test_every_scheme_has_a_golden_digest() -> None:
    assert {name.split()[0] for name in GOLDEN} == set(SCHEMES)
