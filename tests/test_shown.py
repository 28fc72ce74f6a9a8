"""What comes from outside is text on a terminal and nothing else; streams of every kind; events."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout
from datetime import datetime

import numpy as np
import pytest
from conftest import COMMAND, installed
from helpers_images import write_imagefolder
from rich.table import Table

import afltool
from afltool.files.hdf5 import read_header
from afltool.files.outputs import STDOUT
from afltool.files.tables import writing_rows
from afltool.lab.studies.published import make_frame
from afltool.lab.studies.result_table import as_csv, as_latex, as_markdown, crosstab
from afltool.rendering.terminal import add_row, cell, stdout_console
from afltool.values.text import escape_json, escape_line

EVIL = "a\x1b[31m\nerror: forged\r\x9b2J\u202e[bold]\x07"


CONTROL = {chr(c) for c in (*range(32), *range(127, 160)) if chr(c) != "\n"} | {"\u202e", "\u2028"}


def harmless(text):
    return not CONTROL & set(text)


def test_what_cannot_be_printed_is_escaped():
    for text, expected in (
        ("plain é λ 漢 ✓ 👍", "plain é λ 漢 ✓ 👍"),
        ("a\nb\t\x00", r"a\nb\t\x00"),
        ("\x1b[31m\x9b\x7f", r"\x1b[31m\x9b\x7f"),
        ("\u202e\u2066\u2028\ufeff", r"\u202e\u2066\u2028\ufeff"),
        ("\udcff\ud800", r"\xff\ud800"),
    ):
        assert escape_line(text) == expected
        assert escape_line(expected) == expected


def test_json_stays_json():
    value = {EVIL: ["\udcff", "é", {"\x7f": 1}]}
    for ascii_only in (False, True):
        text = escape_json(value, ascii_only=ascii_only)
        assert harmless(text)
        assert json.loads(text) == value
        assert text.isascii() == ascii_only


def test_cells_are_no_markup(capsys):
    table = Table(show_header=False, box=None)
    add_row(table, EVIL, "[red]x[/red]", "[/]")
    stdout_console().print(table)
    out = capsys.readouterr().out
    assert harmless(out)
    assert "[bold]" in out
    assert "[red]x[/red]" in out
    assert cell("[link=x]") == r"\[link=x]"


# ---------------------------------------------------------------- the commands


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


def test_names_that_are_not_utf8_are_refused_before_any_work(tmp_path, road, cli):
    images = write_imagefolder(tmp_path / "images", per_class=2)
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/im\xff")
    shutil.copytree(images, bad)
    os.rename(images / "train" / "line", os.fsencode(images / "train") + b"/\xff")
    extract = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", "32"]
    for args in (
        [*extract, "--data", f"imagefolder:{images}", "-o", tmp_path / "o.h5"],
        [*extract, "--data", f"imagefolder:{bad}", "-o", tmp_path / "o.h5"],
        ["local-stats", road.train, "--client", "\udcff", "--head", "linear", "-o", tmp_path / "s"],
    ):
        done = cli(*args)
        assert (done.exit_code, len(done.stderr.strip().splitlines())) == (3, 1)
        assert "is not Unicode text" in done.stderr


def test_paths_that_are_not_utf8_are_read_and_written(road, tmp_path, cli):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.h5")
    done = cli("aggregate", road.stats, "-o", place)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/\\xff.h5\n")
    listed = subprocess.run(
        [COMMAND, "verify", "-"], input=os.fsencode(place) + b"\n", capture_output=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.decode().startswith(f"{tmp_path}/\\xff.h5: intact")


# ---------------------------------------------------------------- the streams


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


def test_a_reader_that_leaves(road, tmp_path):
    """True ends before anything is written; no work stops for whoever read the messages."""
    done = shell(f"afltool info {q(road.head)} | head -1; afltool verify {q(road.stats)} | true")
    assert done.returncode in (0, 141)
    assert done.stderr == ""
    line = f"afltool solve {q(road.total)} -o {q(tmp_path / 'h.h5')} 2>&1 >out | true"
    assert shell(line, cwd=tmp_path).returncode in (0, 141)
    assert (tmp_path / "out").read_text() == f"{tmp_path}/h.h5\n"
    assert afltool.verify(tmp_path / "h.h5")["intact"]


def test_a_full_disk_behind_stdout(road):
    done = shell(f"afltool info {q(road.head)} > /dev/full")
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_odd_and_endless_paths_on_stdin(cli, road, tmp_path):
    for data in ("a\0b\n", "\x1b[31m\n"):
        done = cli("verify", "-", input=data)
        assert done.exit_code in (2, 3)
        assert harmless(done.stderr)
    done = subprocess.run([COMMAND, "verify", "-"], input=b"\xff\n", capture_output=True)
    assert done.returncode in (2, 3)
    assert b"Traceback" not in done.stderr
    assert harmless(done.stderr.decode())
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


# ---------------------------------------------------------------- tables


def cells(text):
    return {cell for row in csv.reader(io.StringIO(text)) for cell in row}


BAD = "<script>alert(1)</script>|a\nb&c`[x](javascript:1)"


@pytest.fixture
def table():
    line = {"head": BAD, "data": "=cmd()", "top1": 0.5, "kind": "ours", "state": "done"}
    made = crosstab(make_frame([line]), ["head"], ["data"], ["top1"], (), BAD)
    made.notes.append(BAD)
    return made


def test_tables_of_studies_say_a_text_and_do_nothing_else(table):
    text = as_markdown(table)
    assert len(text.splitlines()) == 7  # title, table of three lines, note, and empty lines
    assert r"\<script\>alert(1)\</script\>\|a\\nb\&c\`\[x\](javascript:1)" in text
    assert "<script" not in text.replace("\\<script", "")
    lines = as_latex(table).splitlines()
    assert [line for line in lines if "script" in line and line.startswith("%")] == [lines[-1]]
    assert (lines[-2], len(lines)) == ("% mean ± standard deviation over seeds", 9)
    assert "=cmd()" in cells(as_csv(table)), "CSV has texts as they are"


def test_a_label_is_one_line(tmp_path, cli):
    study = tmp_path / "s.toml"
    for label in ("two\nlines", "a\x1b[31mb", "a\u2028b", "tab\there"):
        study.write_text(f'data = "digits"\nbackbone = "resnet18"\nlabel = {json.dumps(label)}\n')
        done = cli("study", study, "-o", tmp_path / "S")
        assert (done.exit_code, "a label is one line" in done.stderr) == (2, True)
        assert not (tmp_path / "S").exists()


# ---------------------------------------------------------------- events


STEPS = ["features train", "features test", "partition", "head", "local-stats", "solve", "evaluate"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def given(road):
    return ["--train-features", road.train, "--test-features", road.test]


def of(events, *names):
    return [one for one in events if one["event"] in names]


def test_a_run_says_its_steps_files_rounds_and_figures(road, tmp_path, cli):
    out, place = tmp_path / "run", tmp_path / "new" / "events.jsonl"
    command = ["--events", place, "run", *given(road), "--clients", 20, "-o", out]
    assert cli(*command).exit_code == 0
    found = lines(place)
    assert found[0] | {"schema": 1, "command": "run"} == found[0]
    assert found[-1]["event"] == "end"
    assert found[-1]["exit_code"] == 0
    times = [datetime.fromisoformat(one["time"]) for one in found]
    assert times == sorted(times)
    assert len({one["process"] for one in found}) == 1
    steps = of(found, "step_begun", "step_done")
    assert [one["step"] for one in steps] == [step for step in STEPS for _ in range(2)]
    for one in of(found, "step_done")[:-1]:
        assert one["seconds"] >= 0
        assert one["digest"] == read_header(one["path"])["digest"]
    assert {one["path"] for one in of(found, "file")} == {str(path) for path in out.iterdir()}
    summary = json.loads((out / "summary.json").read_text())
    [done], [metrics], [first] = of(found, "run_done"), of(found, "metrics"), of(found, "round")
    assert done["summary"] == summary
    assert metrics["figures"] == {k: summary[k] for k in ("top1", "n")}
    assert first["round"] == 1
    assert first["figures"].items() <= summary["rounds"][0].items()
    # The same folder again, with another option: it is appended, and says how it ended.
    before = place.read_bytes()
    assert cli(*command, "--seed", 1).exit_code == 2  # no such option
    assert cli(*command[:-3], 4, "-o", out).exit_code == 2
    assert place.read_bytes().startswith(before)
    again = lines(place)[len(found) :]
    assert [one["exit_code"] for one in of(again, "end")] == [2, 2]
    assert "clients 20 → 4" in of(again, "error")[0]["text"]


def test_a_single_stage_says_the_file_that_it_makes_or_keeps(road, tmp_path, cli):
    place, out = tmp_path / "events.jsonl", tmp_path / "head.h5"
    for _ in range(2):
        assert cli("--events", place, "solve", road.total, "-o", out).exit_code == 0
    digest = read_header(out)["digest"]
    told = of(lines(place), "file", "file_kept")
    assert [one["event"] for one in told] == ["file", "file_kept"]
    assert all((one["path"], one["digest"]) == (str(out), digest) for one in told)
    on_stderr = cli("-q", "--events", "-", "evaluate", out, road.test, "--json")
    assert [one["event"] for one in map(json.loads, on_stderr.stderr.splitlines())] == [
        "begin", "metrics", "end",
    ]  # fmt: skip
    assert json.loads(on_stderr.stdout)["n"] == 200


def test_nothing_that_holds_no_events_is_appended_to(road, tmp_path, cli):
    places = {name: tmp_path / name for name in ("head.h5", "other.json", "folder", "link")}
    places["head.h5"].write_bytes(road.head.read_bytes())
    places["other.json"].write_bytes(b'{"a": 1}\n')
    places["folder"].mkdir()
    places["link"].symlink_to(road.head)
    for place in places.values():
        before = place.read_bytes() if place.is_file() else b""
        done = cli("--events", place, "info", road.head)
        assert done.exit_code in (2, 3)
        assert str(place) in done.stderr
        assert not place.is_file() or place.read_bytes() == before
