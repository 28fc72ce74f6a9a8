"""Where outputs may go: a regular file that the command does not read, a new one if not asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path

import pytest
from conftest import command_of, inside

import afltool
from afltool.cli.app import app
from afltool.errors import UsageError
from afltool.files.features import open_features
from afltool.files.outputs import partial_path
from afltool.options.base import (
    Holds,
    Options,
    Reads,
    Writes,
    fields_of,
    files_in,
    kinds_of,
)

USAGE, INPUT = 2, 3


@pytest.fixture
def copies(road, tmp_path):
    """A copy of every file of the road, to be put at risk."""
    at = tmp_path / "copies"
    shutil.copytree(road.folder, at)
    return at


def each_output(at):
    """A command of every way to write: the output last, with the files that it reads."""
    head, test, clients, stats = (at / n for n in ("head.h5", "test.h5", "clients.h5", "stats"))
    look = ["plot", "partition", clients, "--width-mm", 40, "--dpi", 30, "-o"]
    return {
        "aggregate": (["aggregate", stats, "-o"], [sorted(stats.iterdir())[0]]),
        "evaluate": (["evaluate", head, test, "-o"], [head, test]),
        "plot": (look, [clients]),
        "predict": (["predict", head, test, "-o"], [head, test]),
    }


# ---------------------------------------------------------------- every pair of declared files


def leaves(command, path=()):
    """Every command that does something, by what is typed after `afltool`."""
    inner = inside(command)
    if not inner:
        yield path, command
    for name in inner:
        yield from leaves(inner[name], (*path, name))


@dataclass(frozen=True)
class Told:
    """What a parameter of a command says of files: by the field that it is made of, or its type."""

    cls: type | None
    name: str
    writes: bool

    def paths(self, text):
        if self.cls is None:
            return [Path(text)]
        plain = "Path" in str(kinds_of(fields_of(self.cls)[self.name]))
        given = {self.name: Path(text) if plain else text}
        return [path for _, path, _ in files_in(self.cls, given)]


@cache
def classes():
    """Every class of options."""
    found, todo = [], [Options]
    while todo:
        found.append(todo.pop())
        todo += found[-1].__subclasses__()
    return found


def told_of(p):
    """`Told` of a parameter that names a file; None of another one."""
    if p.name in ("as_json", "overwrite", "help_all"):
        return None
    for cls in classes():
        for name, info in fields_of(cls).items():
            about = (info.description or "").partition(" (default: ")[0]
            if p.name.endswith(name) and about and (p.help or "").startswith(about):
                said = any(isinstance(m, (Holds, Reads, Writes)) for m in info.metadata)
                if said or "Path" in str(kinds_of(info)):
                    return Told(cls, name, any(isinstance(m, Writes) for m in info.metadata))
                return None
    return (
        Told(None, p.name, p.name == "out") if "Path" in str(p.type_descriptor.annotation) else None
    )


@cache
def declared():
    """(path, inputs, outputs, all parameters) of every command; the first two are of files."""
    found = []
    for path, command in leaves(command_of(app)):
        if path[0] in ("session", "keys"):  # its commands write into a directory of their own
            continue
        told = {p.name: told_of(p) for p in command.params}
        files = {name: one for name, one in told.items() if one is not None}
        given = {p.name: p for p in command.params}
        reads = [(given[name], one) for name, one in files.items() if not one.writes]
        writes = [(given[name], one) for name, one in files.items() if one.writes]
        found.append((path, reads, writes, command.params))
    return found


def spelled(files, path):
    """A file in the form that an option has for it; None where it has another name."""
    forms = (str(path), f"{path}:c", f"M={path}", f"table:{path}")
    return next((one for one in forms if files is None or [*files.paths(one)] == [path]), None)


def typed(p, files, path):
    """The words that give a file to a parameter."""
    text = spelled(files, path)
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
    for path, command in leaves(command_of(app)):
        for p in () if path[0] in ("session", "keys") else command.params:
            text = f"{p.metavar or ''} {getattr(p, 'help', '') or ''}"
            if re.search(r"TABLE:|=FILE|PATH|head file|or a file|TOML", text):
                assert (path, p.name) in known, (path, p.name, text)


def test_no_output_of_any_command_is_its_input_or_its_other_output(tmp_path, cli):
    """All pairs of parameters of files, before any work: nothing else that is given exists."""
    names, content = [tmp_path / "same.csv", tmp_path / "same.afl"], b"row,site\n"
    for name in names:
        name.write_bytes(content)
    for path, reads, writes, every in declared():
        pairs = [*product(writes, reads), *combinations(writes, 2)]
        for (out, form), (other, files) in pairs:
            given = {p.name: typed(p, None, tmp_path / f"no-{p.name}") for p in every if p.required}
            same = next(one for one in names if spelled(form, one) and spelled(files, one))
            given |= {out.name: typed(out, form, same), other.name: typed(other, files, same)}
            words = [word for p in every if p.name in given for word in given[p.name]]
            done = cli(*path, *words)
            assert done.exit_code == USAGE, (words, done.stderr)
            assert name_of(out) in done.stderr, (words, done.stderr)
            assert name_of(other) in done.stderr, (words, done.stderr)
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


#: Of commands that take names of some endings only; the others write anything.
SUFFIXES = {"plot": ".png", "predict": ".csv"}


@pytest.mark.parametrize("name", ["aggregate", "evaluate", "plot", "predict"])
def test_what_is_there_stays_unless_it_may_be_replaced(name, copies, cli):
    """No input, by any of its names, and with --overwrite; no other file without it."""
    args, inputs = each_output(copies)[name]
    for path in inputs:
        before = path.read_bytes()
        suffix = SUFFIXES["predict"] if name == "predict" else path.suffix
        hard, soft = copies / f"hard{suffix}", copies / f"soft{suffix}"
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
    out = copies / f"out{SUFFIXES.get(name, '.h5')}"
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
    places = ["", ".", "..", "/", "-", "x.h5.partial", "/dev/null", "/dev/stdout", "pipe.h5",
              "link.h5", "folder.h5", "x" * 300]  # fmt: skip
    for place, flags in product(places, ([], ["--overwrite"])):
        if (stage, place) != ("evaluate", "-"):
            done = cli(*each_output(copies)[stage][0], place, *flags)
            assert done.exit_code in (USAGE, INPUT), (place, done.stderr)
            assert len(done.stderr) > 20
    assert os.lstat("/dev/null").st_rdev == null.st_rdev
    assert stat.S_ISFIFO(os.lstat("pipe.h5").st_mode)
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


def test_outputs_to_stdout_and_to_one_path(copies, cli):
    args, both = ["evaluate", copies / "head.h5", copies / "test.h5"], copies / "both"
    assert json.loads(cli(*args, "-o", "-").stdout)["n"] == 200
    done = cli(*args, "-o", "-", "--json")
    assert (done.exit_code, done.stdout) == (USAGE, "")
    done = cli(*args, "-o", both, "--errors", both, "--overwrite")
    assert (done.exit_code, "two outputs with one path" in done.stderr) == (USAGE, True)
    assert not (Path.cwd() / "-").exists()
    assert not both.exists()


def test_no_command_replaces_a_key(copies, cli):
    """By its name."""
    for name in ("old.key", "old.pub"):
        path = copies / name
        path.write_text(name)
        done = cli("evaluate", copies / "head.h5", copies / "test.h5", "-o", path, "--overwrite")
        assert done.exit_code == USAGE, (path, done.stderr)
        assert f"{path} exists and has the name of a key" in " ".join(done.stderr.split())
        assert path.read_text() == name
