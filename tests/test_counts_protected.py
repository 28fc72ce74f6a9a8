"""Counts of scored rows under a roster: signed, masked, with noise."""

from __future__ import annotations

import numpy as np
import pytest
from rounds_under_masks import Round, digest

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.statistics import load_statistics
from afltool.heads.evaluation import changes_of_counts
from afltool.privacy import accountant

NOISE = {"dp_epsilon": 2.0, "dp_delta": 1e-5, "clip": 1.0}


@pytest.fixture(scope="module")
def sites(road, tmp_path_factory):
    """Four sites and a solved head, in a round of its evaluation."""
    made = Round(tmp_path_factory.mktemp("sites"), 4, 3)
    other = afltool.solve(road.total, made.folder / "other.h5", ridge=3000.0)
    made.head = afltool.evaluation([road.head, other], made.folder / "round.h5")
    return made


@pytest.fixture
def fresh(sites, request):
    sites.new_roster(f"{request.node.name}.json", 3)
    return sites


def test_the_sum_under_masks_is_the_plain_one(fresh):
    stayed = fresh.sites
    total = fresh.whole(fresh.sites, stayed)
    assert digest(total) == fresh.wanted(stayed)
    found = afltool.info(total)["evaluations"]
    assert found[0]["n"] == 40 + 41 + 42 + 43
    assert found[0]["metrics"]["accuracy"]["is"] == "exact"
    masked = fresh.where / "masked" / "client-site-0.h5"
    assert "evaluations" not in afltool.info(masked)
    assert masked.stat().st_size < 1 << 20


def test_a_site_refuses_a_small_group_under_masks_too(road, tmp_path):
    fresh = Round(tmp_path, 3, 2)
    fresh.head = afltool.evaluation([road.head], tmp_path / "groups.h5", groups=["f", "m"])
    fresh.new_roster("groups.json", 2)
    fresh.offer(fresh.sites)
    with open_features(tmp_path / "site-0.h5") as rows:
        lines = [f"{one.decode()},{'f' if i < 4 else 'm'}" for i, one in enumerate(rows.row_ids)]
    table = fresh.where / "sex.csv"
    table.write_text("\n".join(["row,sex", *lines]) + "\n")
    with pytest.raises(InvalidDataError, match="'site-0' has 4 rows of the group 'f'; expected"):
        fresh.masked("site-0", "small", by=f"{table}:sex")
    assert not (fresh.where / "small").exists()


def test_signed_counts_are_added_up_for_their_roster_alone(sites, road):
    sites.new_roster("signed.json", 3, protection="signed")
    files = [sites.signed(name) for name in sites.sites]
    total = afltool.aggregate(files, sites.where / "sum.h5", roster=sites.roster)
    assert digest(total) == sites.wanted(sites.sites)
    with pytest.raises(MismatchError, match="does not fit the roster"):
        afltool.counts(road.head, sites.folder / "site-0.h5", sites.where / "o", client="site-0",
                       sign=sites.key("site-0"), roster=sites.roster)  # fmt: skip


def test_the_command_counts_under_a_roster(sites, road, cli):
    sites.new_roster("command.json", 3, protection="signed")
    words = ["evaluate", sites.head, sites.folder / "site-1.h5", "--counts", "--client", "site-1",
             "--sign", sites.key("site-1"), "--roster", sites.roster]  # fmt: skip
    done = cli(*words, "-o", sites.where / "o")
    assert done.exit_code == 0, done.output
    assert digest(sites.where / "o" / "client-site-1.h5") == digest(sites.plain("site-1"))
    with pytest.raises(UsageError, match="head evaluation"):
        afltool.roster(sites.public, sites.folder / "r.json", head=str(road.head))


def test_one_row_changes_the_counts_by_what_is_said(sites):
    """Any row, added to any others: each array by its norm at the most, scores by just that."""
    from afltool.files.heads import load_head

    head = load_head(sites.head).head
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 8)) * 3, rng.integers(0, 4, 30)
    for row in range(5):
        others = np.arange(30) != row
        all_of_them = head.gather([(X, y)])[0].arrays
        without = head.gather([(X[others], y[others])])[0].arrays
        said = dict(changes_of_counts({name: a.shape for name, a in all_of_them.items()}))
        for name, a in all_of_them.items():
            change = np.linalg.norm((a - without[name]).ravel())
            exact = not name.startswith("ranks")
            assert change == pytest.approx(said[name]) if exact else change <= said[name]


def test_noise_of_each_site_is_that_of_the_budget(sites):
    """σ of all numbers: the multiplier of the budget times what one row changes."""
    path = afltool.local_stats(
        sites.folder / "site-0.h5", sites.head, sites.folder / "noisy", client="site-0",
        sign=sites.key("site-0"), **NOISE,
    )  # fmt: skip
    noisy, plain = load_statistics(path), load_statistics(sites.plain("site-0"))
    # Of each head confusion, ranks, confidence and 4 of scores; of both the pair; class counts.
    sigma = accountant.gaussian_multiplier(2.0, 1e-5) * np.sqrt(2 * (3 + 4) + 1 + 1)
    assert list(noisy.context.noise["sigma"].values()) == pytest.approx([sigma] * 10)
    added = np.concatenate([(noisy.arrays[k] - a).ravel() for k, a in plain.arrays.items()])
    assert added.std() == pytest.approx(sigma, rel=0.1)
    assert abs(added.mean()) < 5 * sigma / np.sqrt(len(added))
    told = afltool.info(path)
    assert (
        "(ε = 2, δ = 1e-05)-differentially private for one row added or removed." in told["privacy"]
    )


def test_a_total_with_noise_has_shares_with_their_deviation(sites):
    paths = [
        afltool.local_stats(
            sites.folder / f"{name}.h5", sites.head, sites.folder / "loud", client=name,
            sign=sites.key(name), dp_epsilon=200.0, dp_delta=1e-5, clip=1.0,
        )
        for name in sites.sites
    ]  # fmt: skip
    total = afltool.aggregate(paths, sites.folder / "loud.h5")
    found = afltool.info(total)["evaluations"][0]["metrics"]
    assert set(found) == {"accuracy", "top-3"}
    plain = afltool.aggregate([sites.plain(n) for n in sites.sites], sites.folder / "quiet.h5",
                              overwrite=True)  # fmt: skip
    wanted = afltool.info(plain)["evaluations"][0]["metrics"]
    for name, figure in found.items():
        assert figure["is"] == "noisy"
        assert abs(figure["value"] - wanted[name]["value"]) < 5 * figure["sd"]
        assert figure["sd"] < 0.1


def test_noise_shared_under_masks_makes_the_budget_of_the_sum(sites):
    sites.new_roster("shared.json", 4, **NOISE)
    total = sites.whole(sites.sites, sites.sites)
    told = afltool.info(total)["privacy"]
    assert "The sum over 4 clients is (ε = " in told
    assert "with the noise of 3" in told
    sigma = set(load_statistics(total).context.noise["sigma"].values())
    assert len(sigma) == 1
