"""What comes from outside is text on a terminal and nothing else; streams of every kind."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from conftest import COMMAND, installed
from helpers_images import write_imagefolder
from rich.table import Table

import afltool
from afltool.files.outputs import STDOUT
from afltool.files.tables import writing_rows
from afltool.show.terminal import add_row, cell, on_stdout
from afltool.values.text import shown, shown_json

ROOT = Path(afltool.__file__).parent
EVIL = "a\x1b[31m\nerror: forged\r\x9b2J\u202e[bold]\x07"
CONTROL = {chr(c) for c in (*range(32), *range(127, 160)) if chr(c) != "\n"} | {"\u202e", "\u2028"}


def harmless(text):
    return not CONTROL & set(text)


# --- the function ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é λ 漢 ✓ 👍", "plain é λ 漢 ✓ 👍"),
        ("a\nb\t\x00", r"a\nb\t\x00"),
        ("\x1b[31m\x9b\x7f", r"\x1b[31m\x9b\x7f"),
        ("\u202e\u2066\u2028\ufeff", r"\u202e\u2066\u2028\ufeff"),
        ("\udcff\ud800", r"\xff\ud800"),
    ],
)
def test_what_cannot_be_printed_is_escaped(text, expected):
    assert shown(text) == expected
    assert shown(expected) == expected


def test_json_stays_json():
    value = {EVIL: ["\udcff", "é", {"\x7f": 1}]}
    for ascii_only in (False, True):
        text = shown_json(value, ascii_only=ascii_only)
        assert harmless(text)
        assert json.loads(text) == value
        assert text.isascii() == ascii_only


def test_cells_are_no_markup(capsys):
    table = Table(show_header=False, box=None)
    add_row(table, EVIL, "[red]x[/red]", "[/]")
    on_stdout().print(table)
    out = capsys.readouterr().out
    assert harmless(out)
    assert "[bold]" in out
    assert "[red]x[/red]" in out
    assert cell("[link=x]") == r"\[link=x]"


def test_only_three_modules_print():
    """Whoever else printed could forget to escape; `files.tables` puts rows on stdout."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module in ("cli._console", "show.terminal", "files.tables"):
            continue
        text = path.read_text()
        if not re.search(r"print|echo|Console|add_row|(err|out)\.write", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "typer.echo", "typer.secho", "Console"), module
                assert not called.endswith(("table.add_row", "err.write", "out.write")), module


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A feature file, statistics and a head whose names are all of that kind."""
    at = tmp_path_factory.mktemp("evil")
    rng = np.random.default_rng(0)
    np.savez(at / "x.npz", x=rng.normal(size=(60, 4)), y=np.arange(60) % 2)
    classes = at / "classes"
    classes.write_text("[bold]\x1b[31m\nb\x9b\u202e\n")
    names = [EVIL, "b\x9b"]
    train = afltool.import_embeddings(at / "x.npz", at / "x.h5", classes=names, backbone=EVIL)
    stats = afltool.local_stats(train, "linear", at / "s.h5", client=EVIL, sum=True)
    head = afltool.solve(stats, at / "head.h5")
    return train, stats, head


def test_names_of_strangers_do_not_reach_the_terminal(evil, tmp_path, cli):
    train, stats, head = evil
    for args in (
        *(["info", path] for path in evil),
        *(["info", path, "--json"] for path in evil),
        ["verify", *evil],
        ["info", stats, "--field", "clients"],
        ["evaluate", head, train],
        ["evaluate", head, train, "--json"],
        ["partition", train, "--scheme", EVIL, "-o", tmp_path / "p.h5"],
        ["local-stats", train, "--client", EVIL, "--head", "linear", "-o", tmp_path / EVIL],
        ["aggregate", stats, stats, "-o", tmp_path / "t.h5"],
        ["local-stats", train, "--client", "x", "--head", EVIL, "-o", tmp_path / "s"],
        ["info", EVIL.replace("\n", "")],
        [EVIL],
        ["info", f"--{EVIL}"],
        ["head", EVIL],
    ):
        done = cli(*args)
        assert harmless(done.stdout), (args, done.stdout)
        assert harmless(done.stderr), (args, done.stderr)
        assert not any(line.startswith("error: forged") for line in done.stderr.splitlines()), args
        assert "Traceback" not in done.stderr, args


def test_log_lines_are_one_line(cli, caplog):
    from afltool.cli._console import _Plain

    record = logging.LogRecord("afltool", logging.WARNING, "", 0, "client %s", (EVIL,), None)
    assert harmless(_Plain().format(record))
    assert "\n" not in _Plain().format(record)


def test_a_picture_of_such_classes_is_drawn(evil, tmp_path, cli):
    pytest.importorskip("matplotlib")
    train, _, head = evil
    assert cli("evaluate", head, train, "-o", tmp_path / "m.json").exit_code == 0
    done = cli("plot", "confusion", tmp_path / "m.json", "-o", tmp_path / "m.png")
    assert (done.exit_code, (tmp_path / "m.png").exists()) == (0, True), done.stderr


@pytest.mark.parametrize("what", ["class", "folder", "client"])
def test_names_that_are_not_utf8_are_refused_before_any_work(tmp_path, road, what, cli):
    images = write_imagefolder(tmp_path / "images", per_class=2)
    args = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", "32"]
    if what == "class":
        os.rename(images / "train" / "line", os.fsencode(images / "train") + b"/\xff")
    if what == "folder":
        os.rename(images, os.fsencode(tmp_path) + b"/im\xff")
        images = os.fsdecode(os.fsencode(tmp_path) + b"/im\xff")
    args += ["--data", f"imagefolder:{images}", "-o", str(tmp_path / "o.h5")]
    if what == "client":
        args = ["local-stats", str(road.train), "--client", "\udcff", "--head", "linear",
                "-o", str(tmp_path / "s")]  # fmt: skip
    done = cli(*args)
    assert done.exit_code == 3
    assert "is not Unicode text: expected UTF-8" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_paths_that_are_not_utf8_are_read_and_written(road, tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.h5")
    done = installed("aggregate", road.stats, "-o", place)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/\\xff.h5\n")
    done = installed("verify", place)
    assert done.stdout.startswith(f"{tmp_path}/\\xff.h5: intact")
    listed = subprocess.run(
        [COMMAND, "verify", "-"], input=os.fsencode(place) + b"\n", capture_output=True, check=False
    )
    assert listed.returncode == 0, listed.stderr


# --- the streams ----------------------------------------------------------------------------------


def q(path):
    """A path as the shell takes it, whatever the folder of temporary files is called."""
    return shlex.quote(str(path))


def shell(line, **options):
    script = f'set -o pipefail; PATH="{COMMAND.parent}:$PATH"; {line}'
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("variables", [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "POSIX"},
])  # fmt: skip
def test_a_terminal_that_knows_ascii_only(evil, variables):
    for args in (["-h"], ["info", evil[0]], ["info", "é\udcff"]):
        done = installed(*args, env=variables)
        assert "Traceback" not in done.stderr, args
        assert done.returncode == (3 if args[-1] == "é\udcff" else 0), done.stderr
    done = installed("info", evil[0], "--json", env=variables)
    assert EVIL in json.loads(done.stdout)["classes"]


@pytest.mark.slow
def test_closed_streams(road, tmp_path):
    for close in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"afltool aggregate {q(road.stats)} -o t.h5 --overwrite {close}", cwd=tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (close, done.stderr)
        assert afltool.verify(tmp_path / "t.h5")["intact"], "nothing was printed into the file"
        done = shell(f"afltool info no.h5 {close}", cwd=tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (3, False), close
    done = shell("afltool aggregate - -o u.h5 <&-", cwd=tmp_path)
    assert (done.returncode, "stdin: expected a path" in done.stderr) == (3, True)


@pytest.mark.parametrize(("args", "reader"), [
    ("-h", "head -1"), ("run -h", "true"), ("info {head}", "head -1"), ("verify {stats}", "true"),
])  # fmt: skip
def test_a_reader_that_leaves(road, args, reader):
    """True ends before anything is written; head takes one line."""
    line = args.format(head=q(road.head), stats=q(road.stats))
    done = shell(f"afltool {line} | {reader}")
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_a_reader_of_messages_that_leaves_stops_no_work(road, tmp_path):
    line = f"afltool solve {q(road.total)} -o {q(tmp_path / 'h.h5')} 2>&1 >out | true"
    done = shell(line, cwd=tmp_path)
    assert done.returncode in (0, 141)
    assert (tmp_path / "out").read_text() == f"{tmp_path}/h.h5\n"
    assert afltool.verify(tmp_path / "h.h5")["intact"]


def test_a_full_disk_behind_stdout(road):
    done = shell(f"afltool info {q(road.head)} > /dev/full")
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("data", ["a\0b\n", "\x1b[31m\n"])
def test_odd_paths_on_stdin(data, cli):
    done = cli("verify", "-", input=data)
    assert done.exit_code in (2, 3)
    assert harmless(done.stderr)


def test_a_path_on_stdin_that_is_not_utf8():
    done = subprocess.run([COMMAND, "verify", "-"], input=b"\xff\n", capture_output=True)
    assert done.returncode in (2, 3)
    assert b"Traceback" not in done.stderr
    assert harmless(done.stderr.decode())


def test_paths_without_end_on_stdin(road, tmp_path):
    done = shell(f"yes {road.total} | afltool aggregate - -o {tmp_path}/t.h5")
    assert "at most 1,000,000 lines" in done.stderr
    done = shell(f"afltool aggregate - -o {tmp_path}/t.h5 < /dev/zero")
    assert (done.returncode, "line 1 of stdin" in done.stderr) == (3, True)


@pytest.mark.parametrize("terminal", [True, False])
def test_rows_on_stdout_are_escaped_on_a_terminal_alone(terminal):
    """A program reads names as they are; a person's terminal obeys none of them."""

    class Stream(io.StringIO):
        def isatty(self):
            return terminal

    stream = Stream()
    with redirect_stdout(stream), writing_rows(STDOUT, {"path": str}) as append:
        append([[EVIL]])
    assert harmless(stream.getvalue()) is terminal
    assert stream.getvalue().count("\n") == (2 if terminal else 3), "a name forges no line"
