"""What a release says of itself is said once, or equally."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from test_docs import reference

import afltool

ROOT = Path(__file__).parents[1]


def test_the_version_is_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "afltool.__version__"
    citation = (ROOT / "CITATION.cff").read_text()
    (date,) = re.findall(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.M)
    assert f"\nversion: {afltool.__version__}\n" in citation
    newest = re.findall(r"^## (\d.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    assert newest == f"{afltool.__version__} ({date})"


def test_a_release_is_told_in_at_most_two_pages():
    """A page is 60 lines of 120 characters; what is not released yet may be longer."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for release in re.split(r"^## ", text, flags=re.M)[1:]:
        if not release.startswith("Unreleased"):
            assert sum(len(line) // 120 + 1 for line in release.splitlines()) <= 120, release[:20]


def test_the_page_of_the_public_names_is_what_their_docstrings_say():
    page = reference("make_api.py").page()
    assert page == (ROOT / "docs" / "api.md").read_text(), "run python docs/make_api.py"


@pytest.mark.parametrize("name", afltool.__all__)
def test_every_public_name_is_documented(name):
    found = getattr(afltool, name)
    assert found.__doc__
    assert f"\n## {name}\n" in (ROOT / "docs" / "api.md").read_text()


def test_all_that_is_not_public_begins_with_an_underscore_or_is_a_module():
    assert {*afltool.__all__} < {*dir(afltool)}
    own = {n for n in vars(afltool) if n[0] != "_"} - {*afltool.__all__}
    kinds = {n: type(getattr(afltool, n)).__name__ for n in own}
    assert {n for n, kind in kinds.items() if kind != "module"} <= {
        "annotations", "import_module", "ModuleType", "Any", "TYPE_CHECKING",
    }  # fmt: skip
