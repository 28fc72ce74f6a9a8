"""The campaign of faults, each in a process of its own: as docs/reliability.md says for CI."""

from __future__ import annotations

import re

import campaign
import pytest
from campaign import FAULTS

#: Tries here: the first of those of the campaign itself, which has more of the same kinds.
FEWER = {
    "truncation": 15, "bit-flips": 300, "swapped": 80, "two-writers": 1, "disk-full": 1,
    "fuzz-headers": 20, "fuzz-tables": 50, "fuzz-embeddings": 70,
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return campaign.specimens_in(tmp_path_factory.mktemp("specimens"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_try_is_refused_or_harmless(name, folder):
    found = campaign.run(name, folder, FEWER.get(name, FAULTS[name].tries), seed=0)
    assert not found["failures"], "\n".join(found["failures"][:20])
    assert found["refused"] + found["harmless"] == found["tries"]
    assert found["tries"] >= 6


def test_the_campaign_sees_a_fault(tmp_path):
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
