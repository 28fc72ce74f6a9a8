"""Old names of commands and options: exit 2, and what stands in their place."""

from __future__ import annotations

import pytest

from afltool.cli.app import RENAMED

#: A command that an old option is tried with, where it is not one command's.
OF = {
    "--lr-rounds": "baseline fedavg",
    "--stack": "baseline fedavg",
    "--single-round": "head linear",
}


@pytest.mark.parametrize("name", RENAMED)
def test_an_old_name_is_refused_with_the_new_one(name, cli):
    words = name.split()
    if name.startswith("--"):
        words = ([] if name == "--summary" else OF.get(name, "solve").split()) + [name]
    done = cli(*words, *(["value"] if "--" in name else []))
    assert (done.exit_code, done.stdout) == (2, "")
    said = " ".join(done.stderr.split())
    assert said.endswith(f"Error: {RENAMED[name]}"), said
    assert "Possible" not in said
