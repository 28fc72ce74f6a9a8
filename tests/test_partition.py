"""Partitions: laws, oracles of the published splits, golden digests; then the stage over files."""

from __future__ import annotations

import doctest
import hashlib
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import afltool
from afltool import partitions
from afltool.errors import AflError, InvalidDataError, MismatchError, NumericalError, UsageError
from afltool.files.partitions import load_partition
from afltool.options.partition import SCHEMES, PartitionOptions
from afltool.partitions import Assignment, assignment, mean_total_variation, schemes
from afltool.partitions.assignment import canonical_order

SIMULATED: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "shards": {"shards_per_client": 2},
    "dirichlet-pfl": {"alpha": 0.3, "min_size": 0},
}  # pathological-pfl refuses few rows: see its own tests
BY_SITE = {"scheme": "by-attribute", "table": "sites.csv", "column": "site"}
BY_FILE = {"scheme": "file", "table": "clients.csv"}


def assign(*args: Any, attribute: Any = None, **options: Any) -> Any:
    return assignment.assign(*args, PartitionOptions(**options), attribute=attribute)


def row_ids(n: int) -> np.ndarray:
    return np.array([f"train/{i:06d}" for i in range(n)], "S")


def balanced(n: int, n_classes: int) -> np.ndarray:
    """Class c is rows c, c + C, c + 2C … — not sorted by label."""
    return np.arange(n) % n_classes


def of_balanced(n: int, n_classes: int, **options: Any) -> Any:
    return assign(row_ids(n), balanced(n, n_classes), n_classes, **options)


# -- laws ------------------------------------------------------------------------------------------

ANY_NUMBER = st.sampled_from([-1, 0, 1, 2, 3, 7, 10, 60, 5_000, 2**31 - 1, 2**31])
ANY_ALPHA = [math.nan, -math.inf, -1.0, 0.0, 1e-300, 1e-100, 0.01, 1e100, 1e300, math.inf]
ANY: dict[str, Any] = {
    **dict.fromkeys(("clients", "shards_per_client", "min_size"), ANY_NUMBER),
    "alpha": st.sampled_from(ANY_ALPHA),
    "top_up": st.booleans(),
    "name": st.sampled_from(["0", "1", "10", "site A", "", None]),
}
USUAL: dict[str, Any] = {
    "clients": st.integers(1, 60),
    "shards_per_client": st.integers(1, 4),
    "min_size": st.just(0),
    "alpha": st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e3, 1e6]),
    "top_up": st.booleans(),
    "name": st.sampled_from(["0", "1", "10", "site A"]),
}
REFUSING = {"pathological-pfl", "file"}  # few rows, names that are no numbers


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("drawn", [USUAL, ANY], ids=["usual", "any"])
@pytest.mark.parametrize("scheme", sorted(SCHEMES.data))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_options_deal_all_rows_whatever_their_order_or_are_refused(
    scheme: str, drawn: dict[str, Any], data: st.DataObject
) -> None:
    """Empty classes and K > n among them; labels have noise."""
    n, n_classes = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 60))
    labels = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)))
    needs, may = SCHEMES[scheme]
    some = {one for one in may if drawn is USUAL or data.draw(st.booleans())}
    options = {name: data.draw(drawn[name]) for name in sorted((needs | some) & drawn.keys())}
    options |= {"scheme": scheme, "seed": data.draw(st.integers(0, 2**32 - (drawn is USUAL)))}
    options["label_noise"] = 0.3 if n_classes > 1 else 0.0
    texts = np.zeros(n, object)
    if "table" in needs:
        options |= {"table": "sites.csv", "column": "site"}
        texts[:] = data.draw(st.lists(drawn["name"], min_size=n, max_size=n))
    try:
        result = assign(row_ids(n), labels, n_classes, attribute=texts, **options)
    except AflError:
        assert drawn is ANY or scheme in REFUSING
        return
    assert (result.client.shape, result.client.dtype) == ((n,), np.int32)
    assert 0 <= result.client.min() <= result.client.max() < len(result.names)
    if "clients" in options:
        assert result.names == tuple(map(str, range(options["clients"])))
    order = np.array(data.draw(st.permutations(range(n))))
    mixed = assign(row_ids(n)[order], labels[order], n_classes, attribute=texts[order], **options)
    assert np.array_equal(mixed.client, result.client[order])
    assert np.array_equal(mixed.effective_labels, result.effective_labels[order])


@pytest.mark.parametrize("scheme", sorted(SIMULATED))
def test_seeds_matter_and_purposes_have_streams_of_their_own(scheme: str) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    args, how = (row_ids(90), balanced(90, 3), 3), {"scheme": scheme, "clients": 6}
    how |= SIMULATED[scheme]
    plain, other = assign(*args, **how), assign(*args, seed=1, **how)
    both = assign(*args, held_out=0.3, label_noise=0.2, **how)
    noisy = assign(*args, label_noise=0.2, **how)
    assert not np.array_equal(plain.client, other.client)
    assert np.array_equal(plain.client, both.client)
    assert np.array_equal(noisy.effective_labels, both.effective_labels)
    assert np.array_equal(plain.effective_labels, args[1])
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_canonical_order_names_an_id_that_occurs_twice() -> None:
    assert canonical_order(np.array([b"b", b"ab", b"a"])).tolist() == [2, 1, 0]
    with pytest.raises(InvalidDataError, match="b'x' occurs more than once; 2 of 4"):
        canonical_order(np.array([b"x", b"y", b"x", b"x"]))
    with pytest.raises(InvalidDataError, match="byte string, found shape"):
        canonical_order(np.array(["a"]))


# -- extremes --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-pfl"])
def test_extreme_alpha_gives_whole_numbers_and_alpha_rules_how_alike_clients_are(
    scheme: str,
) -> None:
    n, n_classes, clients = 6000, 10, 30
    how, variation = {"scheme": scheme, "min_size": 0}, []
    for alpha in (1e100, 1e6, 100.0, 10.0, 1.0, 0.1, 0.01, 1e-6, 1e-100):
        counts = of_balanced(n, n_classes, clients=clients, alpha=alpha, **how).counts(n_classes)
        assert counts.sum() == n
        if alpha <= 1e-6:
            assert np.array_equal(np.count_nonzero(counts, axis=0), np.ones(n_classes))
        elif alpha < 1e6:
            variation.append(mean_total_variation(counts))
        elif scheme == "dirichlet":
            assert np.abs(counts - n / n_classes / clients).max() <= 1
    for alpha, seed in ((1e-3, 51), (2e-3, 261)):  # gammas add up to a subnormal number
        result = of_balanced(1000, 10, clients=2, alpha=alpha, seed=seed, **how)
        assert result.sizes().sum() == 1000
    assert (np.diff(variation) > 0.01).all()


@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-pfl"])
def test_min_size_is_reached_or_refused_with_alpha_clients_and_chance(scheme: str) -> None:
    args = (row_ids(2000), balanced(2000, 10), 10)
    result = assign(*args, scheme=scheme, clients=10, alpha=0.5, min_size=20)
    assert result.sizes().min() >= 20
    with pytest.raises(
        NumericalError, match=r"0 of 1000 draws at α = 0\.01 and K = 50 clients.*smallest client 0"
    ):
        assign(*args, scheme=scheme, clients=50, alpha=0.01, min_size=1)
    with pytest.raises(UsageError, match="need 3000 rows, found 2000"):
        assign(*args, scheme=scheme, clients=50, alpha=1.0, min_size=60)


# -- what each scheme promises ---------------------------------------------------------------------


def test_iid_is_dealt_evenly_from_shuffled_rows() -> None:
    labels = np.sort(balanced(1000, 4))  # contiguous blocks of these would hold one class each
    result = assign(row_ids(1000), labels, 4, scheme="iid", clients=7)
    assert np.ptp(result.sizes()) <= 1
    assert result.counts(4).all(), "each client has each class"
    assert mean_total_variation(result.counts(4)) < 0.1


def test_shards_give_at_most_s_classes_and_rounding_favours_no_client() -> None:
    for n, n_classes, clients, s in ((8000, 10, 100, 2), (8000, 10, 100, 4), (6000, 100, 60, 5)):
        assert (n // n_classes) % (n // (clients * s)) == 0  # the premise: whole shards per class
        result = of_balanced(n, n_classes, scheme="shards", clients=clients, shards_per_client=s)
        assert np.count_nonzero(result.counts(n_classes), axis=1).max() == s
        assert (result.sizes() == n // clients).all()
    # Floors alone would give the last of five clients half a row of each class more: 1,000 rows.
    rows = of_balanced(6000, 2000, scheme="dirichlet", clients=5, alpha=1.0).sizes()
    assert np.abs(rows - 1200).max() < 150
    rows = of_balanced(1003, 10, scheme="shards", clients=20, shards_per_client=3).sizes()
    assert rows.max() - rows.min() <= 3, "shards differ by one row where they do not fit"


def test_by_attribute_has_one_client_per_value() -> None:
    ids, labels = row_ids(6), np.array([0, 1, 0, 1, 0, 1])
    text = assign(ids, labels, 2, **BY_SITE, attribute=list("bacbac"))
    assert (text.names, text.client.tolist()) == (("a", "b", "c"), [1, 0, 2, 1, 0, 2])
    numbers = ["10", "9", "2", "10", "9", "2"]
    result = assign(ids[::-1], labels, 2, **BY_SITE, attribute=numbers)
    assert (result.names, result.client.tolist()) == (("2", "9", "10"), [2, 1, 0, 2, 1, 0])
    names = ["1", "01", "1 ", "1\0", "NA", "9" * 5000]  # to the last character
    result = assign(ids, labels, 2, **BY_SITE, attribute=names)
    assert [result.names[k] for k in result.client] == names
    for bad, message in (
        (["\ud800", *"abcde"], "not Unicode text"),
        (["a", ""] * 3, "each of 6 rows, found 3 without one"),
        (["a", None] * 3, "each of 6 rows, found 3 without one"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            assign(ids, labels, 2, **BY_SITE, attribute=bad)


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
    changes = (result.effective_labels - labels)[flipped] % n_classes
    steps = np.bincount(changes, minlength=n_classes)
    assert steps[0] == 0
    assert np.abs(steps[1:] - 500).max() < 5 * math.sqrt(500)
    assert result.effective_labels.min() == 0
    assert result.effective_labels.max() == n_classes - 1
    with pytest.raises(UsageError, match="at least 2 classes, found 1"):
        assign(row_ids(3), np.zeros(3, int), 1, scheme="iid", clients=2, label_noise=0.1)


def test_held_out_marks_clients_with_rows_at_least_one_and_never_all() -> None:
    for share, expected in ((0.0, 0), (0.001, 1), (0.1, 2), (0.999, 19)):
        result = of_balanced(100, 2, scheme="iid", clients=20, held_out=share)
        assert result.held_out.dtype == bool
        assert result.held_out.sum() == expected
    result = of_balanced(8, 2, scheme="dirichlet", clients=500, alpha=1.0, held_out=0.5)
    full = result.sizes() > 0
    assert not (result.held_out & ~full).any()
    assert result.held_out.sum() == int(full.sum() / 2 + 0.5)
    with pytest.raises(UsageError, match="at least 2 clients with rows, found 1"):
        of_balanced(8, 2, scheme="iid", clients=1, held_out=0.5)


# -- mistakes --------------------------------------------------------------------------------------


WRONG = [
    ("iid", {}, "iid is given without --clients"),
    ("iid", {"clients": 2, "alpha": 1.0}, "does not take --alpha"),
    ("dirichlet-pfl", {"clients": 1, "alpha": 1.0, "seed": 2**32}, "--seed .*below 2"),
    ("dirichlet-pfl", {"clients": 2, "alpha": 1.0}, "need 20 rows, found 6"),
    ("pathological-pfl", {"clients": 1, "shards_per_client": 1}, "no client has .* class 1 of 2"),
    ("pathological-pfl", {"clients": 20}, r"class 0 has 3 rows for 20 clients.*\[5, 0\)"),
]


@pytest.mark.parametrize(("scheme", "options", "message"), WRONG)
def test_options_that_cannot_be_meant_are_refused(scheme: str, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_balanced(6, 2, scheme=scheme, **options)


def test_labels_that_cannot_be_used_are_refused() -> None:
    for labels, message in (
        ([0, 1, 2], "0 to 1 for 2 classes, found 0 to 2"),
        ([0.0, 1.0, 1.0], "expected integers from 0 to 1.*of float64"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            assign(row_ids(3), np.array(labels), 2, scheme="iid", clients=2)


def test_a_lost_row_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = np.full(4, -1, np.int32), ("0", "1")
    monkeypatch.setattr(schemes, "iid", lambda y, options: lost)
    with pytest.raises(NumericalError, match="found 4 rows without one"):
        of_balanced(4, 2, scheme="iid", clients=2)


# -- counts ----------------------------------------------------------------------------------------


def test_counts_and_variation_of_three_clients_by_hand() -> None:
    labels = np.array([0, 0, 1, 1])
    found = Assignment(client=np.array([0, 0, 0, 2], np.int32), names=("a", "b", "c"),
                       held_out=np.zeros(3, bool), effective_labels=labels)  # fmt: skip
    assert found.counts(2).tolist() == [[2, 1], [0, 0], [0, 1]]
    assert mean_total_variation(found.counts(2)) == pytest.approx((1 / 6 + 1 / 2) / 2)
    assert mean_total_variation(np.array([[3, 6], [1, 2], [0, 0]])) == 0
    assert mean_total_variation(np.eye(100, dtype=int)) == pytest.approx(0.99)
    assert mean_total_variation(np.zeros((3, 2), int)) == 0
    assert sum(doctest.testmod(m).failed for m in (assignment, partitions)) == 0


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


def equal(result: Any, oracle: list[list[int]]) -> bool:
    rows = [np.flatnonzero(result.client == k).tolist() for k in range(len(oracle))]
    return rows == [sorted(own) for own in oracle]


@pytest.mark.parametrize("fill", [False, True], ids=["AFL", "DeepAFL"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 10.0])
def test_dirichlet_pfl_equals_its_oracle(alpha: float, fill: bool) -> None:
    least = 10 if fill or alpha >= 0.5 else 1
    for n, n_classes, clients, seed in ((600, 10, 6, 0), (1000, 7, 20, 1)):
        labels = np.random.default_rng(n).integers(0, n_classes, n)
        oracle = oracle_dirichlet(labels.tolist(), n_classes, clients, alpha, least, seed, fill)
        result = assign(row_ids(n), labels, n_classes, scheme="dirichlet-pfl", clients=clients,
                        alpha=alpha, min_size=least, seed=seed, top_up=fill)  # fmt: skip
        assert equal(result, oracle)


@pytest.mark.parametrize(
    ("n", "n_classes", "clients", "s"), [(5000, 10, 20, 2), (3000, 7, 13, 3), (4000, 10, 10, 10)]
)
def test_pathological_pfl_equals_its_oracle(n: int, n_classes: int, clients: int, s: int) -> None:
    labels, results = np.random.default_rng(n).integers(0, n_classes, n), []
    order = np.random.default_rng(0).permutation(n)
    how = {"scheme": "pathological-pfl", "clients": clients, "shards_per_client": s}
    for seed in (0, 1):
        oracle = oracle_pathological(labels.tolist(), n_classes, clients, s, seed)
        results.append(assign(row_ids(n), labels, n_classes, **how, seed=seed))
        assert equal(results[-1], oracle)
    mixed = assign(row_ids(n)[order], labels[order], n_classes, **how)
    assert np.array_equal(mixed.client, results[0].client[order])


def test_pathological_defaults_are_the_published_ones() -> None:
    how = {"scheme": "pathological-pfl", "clients": 10}
    default = of_balanced(5000, 20, **how)
    stated = of_balanced(5000, 20, **how, shards_per_client=10, min_size=10)
    assert np.array_equal(default.client, stated.client)
    assert (np.count_nonzero(default.counts(20), axis=1) == 10).all()
    iid = of_balanced(50_000, 10, scheme="pathological-pfl", clients=100)
    assert 0.4 < np.mean(iid.client == 99) < 0.5, "the last client has about half of all rows"


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


def test_golden_digests() -> None:
    assert {name.split()[0] for name in GOLDEN} == set(SCHEMES)

    def digest(numbers: np.ndarray) -> str:
        return hashlib.sha256(numbers.astype("<i4").tobytes()).hexdigest()[:16]

    for name, (options, expected) in GOLDEN.items():
        result = of_balanced(3000, 12, **{"scheme": name.split()[0], **options})
        assert digest(result.client) == expected, name
    result = of_balanced(3000, 12, scheme="iid", clients=30, held_out=0.1, label_noise=0.1)
    assert digest(result.effective_labels) == "645a6830e23f11a1"
    assert np.flatnonzero(result.held_out).tolist() == [1, 17, 29]


# -- the stage over files --------------------------------------------------------------------------

IDS = [f"row/{i:04d}" for i in range(400)]


def features(path, order=None, backbone="import"):
    """400 rows of 3 classes, in the given order; row ids go with the rows."""
    rows, order = np.random.default_rng(1), np.arange(400) if order is None else order
    x, y = rows.normal(size=(400, 6)), rows.integers(0, 3, 400)
    np.savez(path.with_suffix(".npz"), x=x[order], y=y[order], row_ids=np.array(IDS)[order])
    return afltool.import_embeddings(path.with_suffix(".npz"), path, backbone=backbone)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return features(tmp_path_factory.mktemp("features") / "train.h5")


def test_one_partition_serves_any_order_and_backbone(train, tmp_path):
    """And of either file it is the same, with a golden digest."""
    other = features(tmp_path / "other.h5", np.random.default_rng(5).permutation(400), "another")
    how = {"alpha": 0.1, "clients": 20, "seed": 3}
    a, b = (afltool.partition(f, tmp_path / f"c-{f.name}", **how) for f in (train, other))
    golden = "781d96b568ad92a524e694212003ce07e7dc3a2aadb41657f110664aadb24207"
    assert afltool.info(a)["digest"] == afltool.info(b)["digest"] == golden
    assert afltool.info(a)["rows_digest"] == afltool.info(b)["rows_digest"]
    order = features(tmp_path / "order.h5", np.random.default_rng(5).permutation(400))
    for k in range(2):
        outs = [
            afltool.local_stats(f, "linear", tmp_path / f"{f.stem}{k}.h5", partition=a,
                                only=str(k), sum=True)
            for f in (train, order)
        ]  # fmt: skip
        assert afltool.info(outs[0])["digest"] == afltool.info(outs[1])["digest"]


def test_a_number_that_is_a_place_and_another_name_chooses_no_client(train, tmp_path):
    table = pd.DataFrame({"row": IDS, "client": np.arange(400) % 3 + 1})
    table.to_csv(tmp_path / "t.csv", index=False)
    dealt = afltool.partition(train, tmp_path / "c.h5", scheme="file", table=tmp_path / "t.csv")
    assert load_partition(dealt).names == ("1", "2", "3")

    def chosen(only):
        out = tmp_path / f"{only.replace('/', ' of ')}.h5"
        total = afltool.local_stats(train, "linear", out, partition=dealt, only=only, sum=True)
        return afltool.info(total)["client_names"]

    for only in ("1", "0-1"):
        with pytest.raises(UsageError, match=r"'1' is at place 0 \(from 0\), and at place 1 is"):
            chosen(only)
    assert chosen("0") == chosen("0/3") == ["1"]
    assert chosen("0-2") == ["1", "2", "3"]


def test_what_is_exported_comes_back_as_the_same_assignment(train, tmp_path):
    table = tmp_path / "t.csv"
    path = afltool.partition(train, tmp_path / "c.h5", alpha=0.01, clients=30)
    kept = path.stat().st_mtime_ns
    afltool.partition(train, path, alpha=0.01, clients=30, export=table)
    assert path.stat().st_mtime_ns == kept, "it is kept, and exported"
    again = afltool.partition(train, tmp_path / "again.h5", scheme="file", table=table, clients=30,
                              export=tmp_path / "again.csv")  # fmt: skip
    first, second = load_partition(path), load_partition(again)
    assert np.array_equal(first.client, second.client)
    assert first.names == second.names
    assert (np.bincount(first.client, minlength=30) == 0).any(), "no empty client: a weak test"
    assert (tmp_path / "again.csv").read_bytes() == table.read_bytes()


def test_held_out_clients_are_summed_apart_and_validate_the_ridge(train, tmp_path):
    clients = afltool.partition(train, tmp_path / "c.h5", scheme="iid", clients=20, held_out=0.1)
    assert len(afltool.info(clients)["held_out"]) == 2
    stats = afltool.local_stats(train, "linear", tmp_path / "stats", partition=clients)
    with pytest.raises(UsageError, match="2 of clients held out for validation: give --held-out"):
        afltool.aggregate([stats], tmp_path / "total.h5")
    total = afltool.aggregate([stats], tmp_path / "total.h5", held_out=tmp_path / "held.h5")
    assert afltool.info(total)["clients"] == 18
    assert afltool.info(tmp_path / "held.h5")["rows"] == 40
    how = {"validate": tmp_path / "held.h5", "head_options": {"ridge": "1e-3:1e3:7"}}
    report = afltool.info(afltool.solve(total, tmp_path / "h.h5", **how))["report"]
    assert report["ridge_by"] == "held-out clients"
    assert all("validation_mse" in point for point in report["ridge_path"])
    with pytest.raises(MismatchError, match="held out and also in the total"):
        afltool.solve(total, tmp_path / "h2.h5", validate=total, head_options={"ridge": "auto"})
    with pytest.raises(UsageError, match="give --held-out FILE"):
        afltool.local_stats(train, "linear", tmp_path / "t.h5", partition=clients, sum=True)
    how = {"partition": clients, "sum": True, "held_out": tmp_path / "v.h5"}
    afltool.local_stats(train, "linear", tmp_path / "t.h5", **how)
    assert afltool.info(tmp_path / "t.h5")["rows"] == 360
    assert afltool.info(tmp_path / "v.h5")["clients"] == 2
