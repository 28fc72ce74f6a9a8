"""Help that helps: what people use first, everything on request, fast, and in the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from typing import get_args

import pytest
from conftest import COMMAND, command_of, commands
from typer.testing import CliRunner

from afltool.cli._help import LONG, OF_HEADS
from afltool.cli._options import parameters
from afltool.cli.app import MODULES, app
from afltool.heads import OPTIONS
from afltool.plans.config import FIELDS

# Not "email": importlib.metadata, which finds the doors, loads it.
HEAVY = (
    "torch", "torchvision", "timm", "numpy", "scipy", "pandas", "h5py", "matplotlib", "sklearn",
    "PIL", "pyarrow", "cryptography", "pydantic", "pydantic_core", "rich", "markdown_it",
    "pygments", "asyncio", "multiprocessing", "unittest",
)  # fmt: skip


def test_help_of_every_command_loads_nothing_heavy():
    """One process for all: what none of them imports, each of them does without."""
    chosen = [list(p) for p in commands(command_of(app))]
    assert ["baseline", "fedfisher"] in chosen
    code = f"""
import contextlib, io, json, sys
import typer
from afltool.cli._options import parameters
from afltool.cli.app import MODULES, app
command = typer.main.get_command(app)
for words in {chosen!r}:
    for ask in ("-h", "{LONG}"):
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
            command([*words, ask], prog_name="afltool")
        assert said.getvalue().startswith("Usage: afltool " + " ".join(words)), words
print(json.dumps(sorted({set(HEAVY)!r} & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_help_of_run_is_what_people_use_and_help_all_is_everything(cli):
    short, long = cli("run", "-h").stdout, cli("run", LONG).stdout
    flags = {line.split()[0] for line in short.splitlines() if line.startswith("  --")}
    assert 12 <= len(flags) <= 24
    assert len(short.splitlines()) <= 55
    assert {"--data", "--backbone", "--clients", "--alpha", "--head"} <= flags
    assert "Options of a head: afltool head NAME -h" in short
    assert all(len(line) <= 80 for line in short.splitlines())
    assert "more options: afltool run --help-all" in short
    for name in FIELDS:
        assert f"--{name.replace('_', '-')}" in long, name


@pytest.mark.parametrize("command", ["solve", "run", "slurm"])
def test_the_ridge_is_in_the_short_help_of_every_command_that_solves(cli, command):
    short = cli(command, "-h").stdout
    ridge = " ".join(short.split("  --ridge TEXT")[1].split("--")[0].split())
    assert "auto for generalised cross-validation" in ridge
    assert "default: by the head" in ridge, "heads have other defaults"
    assert "--min-norm" not in short


def test_what_several_heads_declare_is_one_option_of_a_command():
    """No declaration wins: one type for the shell, and one text where a command has one."""
    declared = {}
    for cls in OPTIONS.values():
        types = {p.name: get_args(p.annotation)[0] for p in parameters(cls)}
        for f in fields(cls):
            assert bool(f.metadata["of_any"]) == f.metadata["common"], f.name
            declared.setdefault(f.name, []).append((types[f.name], f.metadata["of_any"]))
    assert len(declared["ridge"]) == 5
    assert {name for name, found in declared.items() if len(set(found)) > 1} == set()


def test_ranges_and_defaults_are_those_of_each_head(cli):
    long = cli("run", LONG).stdout
    texts = {name: long.split(f"{OF_HEADS} {name}:")[1].split("\n\n")[0] for name in OPTIONS}
    ridge = {name: " ".join(text.split()) for name, text in texts.items()}
    assert "(default: 0)" in ridge["linear"]
    assert "--layers" in ridge["deepafl"]
    assert "--layers" not in ridge["linear"]
    for name, cls in OPTIONS.items():
        for field in (f.name for f in fields(cls)):
            if field != "seed":
                assert f"--{field.replace('_', '-')}" in texts[name], (name, field)


def test_defaults_are_those_of_the_command(cli):
    run, partition = (" ".join(cli(one, "-h").stdout.split()) for one in ("run", "partition"))
    assert "number of clients K (1 to 2^31 − 1; default: 100)" in run
    assert "number of clients K (1 to 2^31 − 1)" in partition
    assert "default: cifar10" not in run


@pytest.mark.parametrize("words", [["run", "-h"], ["-q", "run", "x.toml", "--head", "x", "--help"]])
def test_help_is_found_wherever_it_stands(words, cli):
    done = cli(*words)
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage: ")
    assert "--backbone" in done.stdout


def test_behind_two_dashes_it_is_a_name(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("info", "--", "-h")
    assert done.exit_code == 3
    assert "-h" in done.stderr


def test_a_group_without_a_command_shows_its_help_as_a_mistake(cli):
    for words in ([], ["head"], ["plot"]):
        done = cli(*words)
        assert done.exit_code == 2
        assert "Commands:" in done.stdout


def asking(words):
    """What bash sets when it asks the command for completions."""
    return {
        "_AFLTOOL_COMPLETE": "complete_bash", "COMP_WORDS": f"afltool {words}",
        "COMP_CWORD": str(len(f"x {words}x".split()) - 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run --head ", list(OPTIONS)),
        ("local-stats x.h5 --head s", ["safle", "softmax"]),
        ("partition x.h5 --scheme dir", ["dirichlet", "dirichlet-pfl"]),
        ("run --backbone eff", ["efficientnet_lite0"]),
        ("extract --data cif", ["cifar10", "cifar100"]),
        ("slurm --data im", ["imagefolder:PATH"]),
        ("run --da", ["--data", "--data-root"]),
        ("extract --precision ", ["fp32", "bf16", "fp16"]),
        ("sol", ["solve"]),
    ],
)
def test_the_shell_completes_names_and_values(words, expected):
    done = CliRunner().invoke(app, env=asking(words), prog_name="afltool")
    assert done.stdout.split() == expected


def test_the_installed_command_completes():
    env = {**os.environ, **asking("run --da")}
    done = subprocess.run([COMMAND], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["--data", "--data-root"]


def test_the_table_of_commands_is_that_of_their_modules():
    """A word loads the module that the table says, and this one has it."""
    every = command_of(app)
    words = [word for told in MODULES.values() for word in told.split()]
    assert sorted(words) == sorted(every.known())
    assert [word for word in words if word not in every.known(word)] == []
