"""The documentation says what the program does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def reference():
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "make_commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_reference_is_what_the_commands_say():
    page = reference().page()
    assert page == (ROOT / "docs" / "commands.md").read_text(), "run python docs/make_commands.py"


def test_every_option_has_a_help_text():
    import typer

    from afltool.cli.app import app

    for name, command in reference().commands(typer.main.get_command(app), "afltool"):
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", ""), f"{name} {parameter.name}"


def test_the_readme_names_only_commands_and_options_that_exist():
    text = (ROOT / "README.md").read_text()
    page = reference().page()
    known = set(re.findall(r"--[a-z][a-z-]*", page)) | {"--json", "--quiet", "--version"}
    assert set(re.findall(r"--[a-z][a-z-]*", text)) <= known
    commands = set(re.findall(r"^## afltool ([a-z-]+)", page, re.M))
    named = set(re.findall(r"`?afltool ([a-z][a-z-]+)", text)) - {"over"}
    assert named <= commands
    assert {"extract", "partition", "local-stats", "aggregate", "solve", "evaluate"} <= named


def test_every_format_name_is_documented():
    from afltool.store import schema

    text = (ROOT / "docs" / "format.md").read_text()
    for name in (schema.FORMAT, schema.FORMAT_VERSION, schema.HEADER_SHA256, schema.COMPLETE):
        assert f"`{name}`" in text
    for kind in schema.KINDS:
        assert f"`{kind}`" in text


@pytest.mark.parametrize("path", sorted((ROOT / "afltool").rglob("*.py")), ids=str)
def test_every_module_says_what_it_is(path):
    import ast

    assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_changelog_has_an_unreleased_part():
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
