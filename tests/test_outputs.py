"""Where outputs may go: a regular file that the command does not read, a new one if not asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from functools import cache
from itertools import combinations, product
from pathlib import Path

import conftest
import pytest
from conftest import command_of, inside

import afltool
from afltool.cli import commands
from afltool.cli.app import app
from afltool.errors import UsageError
from afltool.files.features import open_features
from afltool.files.outputs import partial_path
from afltool.options.base import (
    Holds,
    Reads,
    Writes,
    files_in,
    get_fields,
    get_types,
)

USAGE, INPUT = 2, 3


@pytest.fixture
def copies(road, tmp_path):
    """A copy of every file of the road, to be put at risk."""
    at = tmp_path / "copies"
    shutil.copytree(road.folder, at)
    return at


def each_output(at):
    """A command that writes HDF5 and one that writes a text: the output last, with its inputs."""
    head, test, stats = (at / name for name in ("head.h5", "test.h5", "stats"))
    return {
        "aggregate": (["aggregate", stats, "-o"], [min(stats.iterdir())]),
        "evaluate": (["evaluate", head, test, "-o"], [head, test]),
    }


# ---------------------------------------------------------------- every pair of declared files


def leaves(command, path=()):
    """Every command that does something, by what is typed after `afltool`."""
    inner = inside(command)
    if not inner:
        yield path, command
    for name in inner:
        yield from leaves(inner[name], (*path, name))


def said(of, *kinds):
    """Whether the field of a `Parameter` says so of a file."""
    return any(isinstance(one, kinds) for one in get_fields(of.cls)[of.own].metadata)


def is_path(of):
    return "Path" in str(get_types(get_fields(of.cls)[of.own]))


@cache
def declared():
    """(path, inputs, outputs, all parameters) of every command; the first two are of files."""
    build, found = commands.typer_command, []

    def with_fields(name, about, call, every, common):
        made = build(name, about, call, every, common)
        made.made_of = {p.name: p for p in every}
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "typer_command", with_fields)
        patch.setattr(conftest, "built", {})  # each command is built again
        every = [one for one in leaves(command_of(app)) if one[0][0] not in ("session", "keys")]
    for path, command in every:  # those two write into a directory of their own
        of = [(p, command.made_of[p.name]) for p in command.params if p.name in command.made_of]
        files = [one for one in of if said(one[1], Holds, Reads, Writes) or is_path(one[1])]
        reads, writes = ([one for one in files if said(one[1], Writes) == w] for w in (False, True))
        found.append((path, reads, writes, command.params))
    return found


def spelled(of, path):
    """A file in the form that an option has for it; None where it has another name."""
    for form in (str(path), f"{path}:c", f"M={path}", f"table:{path}"):
        given = {of.own: Path(form) if is_path(of) else form}
        if [one for _, one, _ in files_in(of.cls, given)] == [path]:
            return form
    return None


def typed(p, text):
    """The words that give a file to a parameter."""
    return [text] if p.param_type_name == "argument" else [p.opts[0], text]


def name_of(p):
    return p.opts[0] if p.param_type_name == "option" else (p.metavar or p.name).upper().strip(".")


def test_every_output_is_declared_as_one():
    """Its name or its help says so; everything else of type path is read."""
    outputs, inputs = set(), set()
    for _, reads, writes, _ in declared():
        outputs |= {name_of(p) for p, _ in writes}
        inputs |= {(name_of(p), p.help) for p, _ in reads}
    assert outputs == {"--out", "--errors", "--export", "--card", "--held-out"}
    suspicious = [one for one in inputs if "write" in one[1].lower() or "file for" in one[1]]
    assert not suspicious


def test_every_path_is_declared():
    """Also those that stand in a text: the help of such a parameter names a file."""
    known = {(path, p.name) for path, reads, writes, _ in declared() for p, _ in (*reads, *writes)}
    for path, _, _, every in declared():
        for p in every:
            text = f"{p.metavar or ''} {getattr(p, 'help', '') or ''}"
            if re.search(r"TABLE:|=FILE|PATH|head file|or a file|TOML", text):
                assert (path, p.name) in known, (path, p.name, text)


def test_no_output_of_any_command_is_its_input_or_its_other_output(tmp_path, cli):
    """All pairs of parameters of files, before any work: nothing else that is given exists."""
    names, content = [tmp_path / "same.csv", tmp_path / "same.afl"], b"row,site\n"
    for name in names:
        name.write_bytes(content)
    seen = set()
    for path, reads, writes, every in declared():
        pairs = [*product(writes, reads), *combinations(writes, 2)]
        for pair in pairs:
            fields = tuple((of.cls, of.own) for _, of in pair)  # several commands share some
            if fields in seen:
                continue
            seen.add(fields)
            given = {p.name: typed(p, str(tmp_path / f"no-{p.name}")) for p in every if p.required}
            same = next(one for one in names if all(spelled(of, one) for _, of in pair))
            given |= {p.name: typed(p, spelled(of, same)) for p, of in pair}
            words = [word for p in every if p.name in given for word in given[p.name]]
            done = cli(*path, *words)
            assert done.exit_code == USAGE, (words, done.stderr)
            for p, _ in pair:
                assert name_of(p) in done.stderr, (words, done.stderr)
            assert same.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["same.afl", "same.csv"]


def test_an_input_is_known_by_any_of_its_names(copies, cli):
    """Through `..`, through a folder that is a link, by a hard link; and in functions of Python."""
    table, folder = copies / "sites.csv", copies / "link"
    with open_features(copies / "test.h5") as rows:
        ids = [one.decode() for one in rows.row_ids]
    table.write_text("row,site\n" + "".join(f"{one},{i % 3}\n" for i, one in enumerate(ids)))
    before = table.read_bytes()
    folder.symlink_to(copies, target_is_directory=True)
    os.link(table, copies / "hard.csv")
    for place in (copies / "stats" / ".." / "sites.csv", folder / "sites.csv", copies / "hard.csv"):
        for option in ("-o", "--errors"):
            done = cli("evaluate", copies / "head.h5", copies / "test.h5", "--group-by",
                       f"{table}:site", option, place, "--overwrite")  # fmt: skip
            assert done.exit_code == USAGE, (place, option)
            assert "--group-by" in done.stderr
            assert table.read_bytes() == before
    with pytest.raises(UsageError, match=r"--errors .* \(--resample-by\)"):
        afltool.evaluate(copies / "head.h5", copies / "test.h5", resample_by=f"{table}:site",
                         errors=str(table), overwrite=True)  # fmt: skip
    with pytest.raises(UsageError, match=r"--out .* \(FEATURES\)"):
        afltool.convert(copies / "test.h5", copies / "link" / "test.h5", overwrite=True)


@pytest.mark.parametrize("name", ["aggregate", "evaluate"])
def test_what_is_there_stays_unless_it_may_be_replaced(name, copies, cli):
    """No input, by any of its names, and with --overwrite; no other file without it."""
    args, inputs = each_output(copies)[name]
    for path in inputs:
        before = path.read_bytes()
        hard, soft = copies / "hard.h5", copies / "soft.h5"
        os.link(path, hard)
        soft.symlink_to(path)
        for out, flags in product((path, hard, soft), ([], ["--overwrite"])):
            done = cli(*args, out, *flags)
            assert done.exit_code in (USAGE, INPUT), (out, done.stdout, done.stderr)
            assert str(out) in done.stderr
            assert (path.read_bytes(), soft.is_symlink()) == (before, True)
            assert not partial_path(out).exists()
        hard.unlink()
        soft.unlink()
    out = copies / "out.h5"
    for content in ((copies / "test.h5").read_bytes(), b"my thesis\n", b"\x89PNG\r\n\x1a\n\0"):
        out.write_bytes(content)
        done = cli(*args, out)
        assert (done.exit_code, "--overwrite" in done.stderr) == (USAGE, True), done.stderr
        assert out.read_bytes() == content
    out.write_bytes(b"")  # as mktemp makes one
    assert cli(*args, out, "--overwrite").exit_code == 0
    assert out.stat().st_size > 0


@pytest.mark.parametrize("stage", ["aggregate", "evaluate"])
def test_odd_places_are_refused_and_stay_as_they_are(stage, copies, cli, monkeypatch):
    monkeypatch.chdir(copies)
    null = os.lstat("/dev/null")
    os.mkfifo("pipe.h5")
    (copies / "link.h5").symlink_to(copies / "target.h5")
    (copies / "folder.h5").mkdir()
    for key in ("old.key", "old.pub"):
        (copies / key).write_text(key)
    places = ["", ".", "..", "/", "-", "x.h5.partial", "/dev/null", "/dev/stdout", "pipe.h5",
              "link.h5", "folder.h5", "old.key", "old.pub", "x" * 300]  # fmt: skip
    for place, flags in product(places, ([], ["--overwrite"])):
        if (stage, place) != ("evaluate", "-"):
            done = cli(*each_output(copies)[stage][0], place, *flags)
            assert done.exit_code in (USAGE, INPUT), (place, done.stderr)
            if flags:
                assert ("has the name of a key" in done.stderr) == place.startswith("old.")
            assert len(done.stderr) > 20
    assert os.lstat("/dev/null").st_rdev == null.st_rdev
    assert stat.S_ISFIFO(os.lstat("pipe.h5").st_mode)
    assert [(copies / key).read_text() for key in ("old.key", "old.pub")] == ["old.key", "old.pub"]
    assert (copies / "link.h5").is_symlink()
    assert not (copies / "target.h5").exists()
    assert not list(copies.glob("**/*.partial"))


def test_a_partial_file_that_is_a_link_is_not_followed(copies, cli):
    precious = copies / "precious"
    precious.write_bytes(b"my thesis")
    for make in (os.symlink, os.link):
        for name in ("aggregate", "evaluate"):
            out = copies / f"out-{name}"
            make(precious, partial_path(out))
            done = cli(*each_output(copies)[name][0], out)
            assert done.exit_code == INPUT, done.stderr
            assert str(out) in done.stderr
            assert precious.read_bytes() == b"my thesis"
            partial_path(out).unlink()
            assert not out.exists()


# ---------------------------------------------------------------- texts and tables


def test_an_equal_text_is_kept_and_another_is_refused_unless_asked(copies, cli):
    args = ["evaluate", copies / "head.h5", copies / "test.h5", "--each-round"]
    outs = {"-o": copies / "m.json", "--errors": copies / "c.csv"}
    given = [part for item in outs.items() for part in item]
    assert cli(*args, *given).exit_code == 0
    assert cli(*args, *given).exit_code == 0
    for option, out in outs.items():
        before = out.read_bytes()
        out.write_bytes(before + b" ")
        done = cli(*args, option, out)
        assert done.exit_code == USAGE
        assert "use --overwrite" in done.stderr
        assert out.read_bytes() == before + b" "
        assert cli(*args, option, out, "--overwrite").exit_code == 0
        assert out.read_bytes() == before


def test_outputs_to_stdout(copies, cli):
    args = ["evaluate", copies / "head.h5", copies / "test.h5"]
    assert json.loads(cli(*args, "-o", "-").stdout)["n"] == 200
    done = cli(*args, "-o", "-", "--json")
    assert (done.exit_code, done.stdout) == (USAGE, "")
    assert not (Path.cwd() / "-").exists()
