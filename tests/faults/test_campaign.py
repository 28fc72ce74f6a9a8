"""The campaign of faults in CI: every fault as often as docs/reliability.md says, and a sample of
some of them among the fast tests. Each runs in a process of its own; see `campaign`."""

from __future__ import annotations

import re

import campaign
import pytest
from campaign import FAULTS

LEAST = {"bit-flips": 1000, "bit-flips-command": 20}  # what was promised


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return campaign.specimens_in(tmp_path_factory.mktemp("specimens"))


FAST = 4  # tries of a fault in the fast tests


def survived(name, folder, tries, seed=0):
    found = campaign.run(name, folder, tries, seed)
    assert not found["failures"], "\n".join(found["failures"][:20])
    assert found["refused"] + found["harmless"] == found["tries"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_try_is_refused_or_harmless(name, folder):
    found = survived(name, folder, FAULTS[name].tries)
    if name == "read-only" and not found["tries"]:
        pytest.skip("root may write anywhere here, and may not mount")
    assert found["tries"] >= LEAST.get(name, 6)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.sample])
def test_a_sample(name, folder):
    assert survived(name, folder, min(FAULTS[name].sample, FAST), seed=1)["tries"]


def test_the_campaign_sees_a_fault(folder, tmp_path):
    """The premise: a reader that does not look, an error that is a bug and a hang are counted."""
    from bench import Bench

    bench = Bench()
    bench.attempt("another result", lambda: 1, expected=2)
    bench.attempt("a bug", lambda: [][0])
    bench.inside("no message", ["head", "linear", "-o", tmp_path / "h.h5"], lambda: 1, expected=2)
    assert (bench.tries, len(bench.failures)) == (3, 3)


def test_the_table_has_every_fault_and_only_survivors():
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|", campaign.TABLE.read_text(), re.M)
    assert {title for title, *_ in rows} >= {fault.title for fault in FAULTS.values()}
    for title, tries, alive in rows:
        assert tries == alive, title
        assert int(tries) > 0, title
