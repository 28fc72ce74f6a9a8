"""The commands, over a folder, on feature files."""

from __future__ import annotations

import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from afltool.cli import main  # noqa: F401  (the heads are registered)
from afltool.federation import cli, site
from afltool.federation.session import SESSION

app = typer.Typer()
app.add_typer(cli.keys, name="keys")
app.add_typer(cli.session, name="session")


def run(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def sites(tmp_path, monkeypatch):
    import subprocess
    import sys

    monkeypatch.setattr(site, "LEDGER", tmp_path / "masked.json")
    rng = np.random.default_rng(0)
    for k, name in enumerate(("north", "south", "west")):
        y = np.arange(40 + k) % 3
        x = (rng.normal(size=(len(y), 5)) + 2 * np.eye(3, 5)[y]).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.array(["a", "b", "c"])[y])
        words = ["import", tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.h5", "--x", "x", "--y", "y",
                 "--dtype", "int16", "--fraction-bits", "10"]  # fmt: skip
        subprocess.run([sys.executable, "-m", "afltool", *map(str, words)], check=True)
    run("keys", "new", "north", "south", "west", "server", "-o", tmp_path / "keys")
    return tmp_path


def test_one_command_a_site(sites):
    place, names = sites / "place", ("north", "south", "west")
    said = run("session", "new", "--members", sites / "keys", "--server", sites / "keys/server.pub",
               "--head", "linear", "--space", sites / "north.h5", "-o", sites / "trial").output  # fmt: skip
    code = re.search(r"code +([0-9a-f ]+)", said)[1].strip()
    serve = (
        "session",
        "serve",
        place,
        "--key",
        sites / "keys/server",
        "-o",
        sites / "trial",
        "--once",
    )
    joins = {
        n: (
            "session",
            "join",
            place,
            sites / f"{n}.h5",
            "--key",
            sites / "keys" / n,
            "-o",
            sites / n,
            "--once",
        )
        for n in names
    }
    CliRunner().invoke(app, [*map(str, serve)])
    asked = CliRunner().invoke(app, [*map(str, joins["north"])])
    assert "north, south, west" in str(asked.exception) and "3 of 3 must stay" in str(
        asked.exception
    )
    for _ in range(8):
        for words in (serve, *((*j, "--approve", code) for j in joins.values())):
            done = CliRunner().invoke(app, [*map(str, words)])
            assert done.exit_code == 0 or "waiting for" in str(done.exception), done.exception
    run(*serve)
    assert "waiting" not in run("session", "status", place).output
    heads = {n: (sites / n / "head-2.h5").exists() for n in (*names, "trial")}
    assert all(heads.values())
    said = run(
        "session", "leave", sites / "trial", "--without", "west", "-o", sites / "next"
    ).output
    assert "west" not in said.partition("server")[0] and "follows" in said
    again = CliRunner().invoke(app, [*map(str, joins["north"][:2]), str(sites / "place2")])
    assert again.exit_code
    run("session", "status", place)
    assert (sites / "next" / SESSION).exists()
