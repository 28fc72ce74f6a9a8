"""Where outputs may go: a regular file that the command does not read, of the same kind or none."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from afltool.store.kinds import kind_of_file
from afltool.store.outputs import partial_path

USAGE, INPUT = 2, 3


@pytest.fixture
def copies(road, tmp_path):
    """A copy of every file of the road, to be put at risk."""
    at = tmp_path / "copies"
    shutil.copytree(road.folder, at)
    return at


def each_output(at):
    """Every option that names an output, by a command that has it, the output last."""
    train, test, clients, stats = (at / n for n in ("train.h5", "test.h5", "clients.h5", "stats"))
    head, head0, total = at / "head.h5", at / "head0.h5", at / "total.h5"
    one = sorted(stats.iterdir())[0]
    dealt = ["local-stats", train, "--partition", clients, "--head", head0, "--sum"]
    noisy = ["partition", train, "--scheme", "iid", "--clients", 2]
    return {
        "import": (["import", at / "train.npz", "-o"], [at / "train.npz"]),
        "convert": (["convert", train, "--fraction-bits", 3, "-o"], [train]),
        "partition": ([*noisy, "-o"], [train]),
        "export": ([*noisy, "-o", at / "new.h5", "--export"], [train]),
        "head": (["head", "safle", "--thresholds", train, "-o"], [train]),
        "sum": ([*dealt, "-o"], [train, clients, head0]),
        "aggregate": (["aggregate", stats, "-o"], [one]),
        "add": (["aggregate", total, "--subtract", one, "-o"], [total, one]),
        "solve": (["solve", total, "--ridge", 2, "-o"], [total]),
        "solve by head": (["solve", total, "--head", head0, "--ridge", 2, "-o"], [total, head0]),
        "evaluate": (["evaluate", head, test, "-o"], [head, test]),
        "confusion": (["evaluate", head, test, "--confusion"], [head, test]),
        "plot": (["plot", "partition", clients, "-o"], [clients]),
        "predict": (["predict", head, test, "-o"], [head, test]),
        "model": (["export", head, "-o"], [head]),
    }  # fmt: skip


NAMES = (
    "import", "convert", "partition", "export", "head", "sum", "aggregate", "add", "solve",
    "solve by head", "evaluate", "confusion", "plot", "predict", "model",
)  # fmt: skip
#: Of commands that take names of some endings only; the others write .h5, or anything.
SUFFIXES = {"plot": ".png", "export": ".csv", "predict": ".csv", "model": ".safetensors"}


@pytest.mark.parametrize("name", NAMES)
def test_no_output_is_a_file_that_the_command_reads(name, copies, cli):
    """By its own name, by a hard link and by a symbolic one, with --overwrite and without."""
    args, inputs = each_output(copies)[name]
    for path in inputs:
        before = path.read_bytes()
        suffix = SUFFIXES[name] if name in ("predict", "model") else path.suffix
        hard, soft = copies / f"hard{suffix}", copies / f"soft{suffix}"
        os.link(path, hard)
        soft.symlink_to(path)
        for out in (path, hard, soft):
            for flags in ([], ["--overwrite"]):
                done = cli(*args, out, *flags)
                assert done.exit_code in (USAGE, INPUT), (out, done.stdout, done.stderr)
                assert str(out) in done.stderr
                assert path.read_bytes() == before
                assert soft.is_symlink()
                assert not partial_path(out).exists()
        hard.unlink()
        soft.unlink()


@pytest.mark.parametrize("name", NAMES)
def test_no_command_replaces_a_file_of_another_kind(name, copies, cli):
    """Nor a text, a picture or another program's file, whatever the flags."""
    args, _ = each_output(copies)[name]
    writes = {"export": "text", "confusion": "text", "evaluate": "JSON", "plot": "PNG",
              "predict": "text", "model": "other"}  # fmt: skip
    out = copies / f"out{SUFFIXES.get(name, '.h5')}"
    assert cli(*args, out).exit_code == 0
    ours = writes.get(name) or kind_of_file(out)
    others = {
        "features": (copies / "test.h5").read_bytes(),
        "head": (copies / "head0.h5").read_bytes(),
        "text": b"my thesis\n",
        "JSON": b'{"a": 1}',
        "PNG": b"\x89PNG\r\n\x1a\n\0",
        "other": bytes(100),
    }
    for kind, content in others.items():
        if kind != ours:
            out.write_bytes(content)
            done = cli(*args, out, "--overwrite")
            assert done.exit_code == USAGE, (kind, done.stderr)
            assert "another kind" in done.stderr
            assert out.read_bytes() == content
    out.write_bytes(b"")  # as mktemp makes one
    assert cli(*args, out, "--overwrite").exit_code == 0
    assert kind_of_file(out) == ours


def odd_places(at):
    """Paths that no output can have."""
    os.mkfifo(at / "pipe.h5")
    (at / "link.h5").symlink_to(at / "target.h5")
    (at / "folder.h5").mkdir()
    return ["", ".", "..", "/", "-", "x.h5.partial", "/dev/null", "/dev/stdout", "/dev/fd/1",
            at / "pipe.h5", at / "link.h5", at / "folder.h5", at / ("x" * 300)]  # fmt: skip


@pytest.mark.parametrize(
    "stage",
    [
        "aggregate",
        "evaluate",
        *(pytest.param(s, marks=pytest.mark.slow) for s in ("convert", "plot", "export")),
    ],
)
def test_odd_places_are_refused_and_stay_as_they_are(stage, copies, cli, monkeypatch):
    monkeypatch.chdir(copies)
    null = os.lstat("/dev/null")
    for place in odd_places(copies):
        if stage == "evaluate" and place == "-":
            continue
        for flags in ([], ["--overwrite"]):
            done = cli(*each_output(copies)[stage][0], place, *flags)
            assert done.exit_code in (USAGE, INPUT), (place, done.stderr)
            assert len(done.stderr) > 20
    assert os.lstat("/dev/null").st_rdev == null.st_rdev
    assert stat.S_ISFIFO(os.lstat("pipe.h5").st_mode)
    assert (copies / "link.h5").is_symlink()
    assert not (copies / "target.h5").exists()
    assert not list(copies.glob("**/*.partial"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may replace a device")
def test_a_device_is_not_replaced_even_by_root(copies, cli):
    device = copies / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this root may not make devices")
    for name in ("aggregate", "evaluate"):
        done = cli(*each_output(copies)[name][0], device, "--overwrite")
        assert done.exit_code == INPUT
        assert "is a device" in done.stderr
        assert stat.S_ISCHR(os.lstat(device).st_mode)


def test_a_partial_file_that_is_a_link_is_not_followed(copies, cli):
    precious = copies / "precious"
    precious.write_bytes(b"my thesis")
    for make in (os.symlink, os.link):
        for name in ("aggregate", "evaluate"):
            out = copies / f"out-{name}"
            make(precious, partial_path(out))
            done = cli(*each_output(copies)[name][0], out)
            assert done.exit_code == INPUT, done.stderr
            assert partial_path(out).name in done.stderr
            assert precious.read_bytes() == b"my thesis"
            partial_path(out).unlink()
            assert not out.exists()


def test_a_left_over_partial_file_goes_when_there_is_no_space(copies, cli, monkeypatch):
    """It may be what fills the disk; and a command that is refused leaves nothing."""
    out = copies / "out.h5"
    partial_path(out).write_bytes(bytes(10_000))
    full = shutil.disk_usage(copies)._replace(free=0)
    with monkeypatch.context() as patch:
        patch.setattr("afltool.store.atomic.shutil.disk_usage", lambda _: full)
        done = cli(*each_output(copies)["aggregate"][0], out)
    assert done.exit_code == INPUT
    assert "no space left" in done.stderr
    assert not partial_path(out).exists()


# ---------------------------------------------------------------- texts and tables


def test_an_equal_text_is_kept_and_another_is_refused_unless_asked(copies, cli):
    args = ["evaluate", copies / "head.h5", copies / "test.h5", "--each-round"]
    outs = {"-o": copies / "m.json", "--confusion": copies / "c.csv", "--rounds": copies / "r.csv"}
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


def test_two_outputs_are_two_files(copies, cli):
    out = copies / "both"
    done = cli("evaluate", copies / "head.h5", copies / "test.h5",
               "-o", out, "--confusion", out, "--overwrite")  # fmt: skip
    assert done.exit_code == USAGE
    assert "its other output" in done.stderr
    assert json.loads(out.read_text())["n"] == 200


def test_one_output_goes_to_stdout_as_a_stream(copies, cli):
    args = ["evaluate", copies / "head.h5", copies / "test.h5"]
    assert json.loads(cli(*args, "-o", "-").stdout)["n"] == 200
    assert cli(*args, "--confusion", "-").stdout.startswith("true,0,1,2,3\n")
    assert cli(*args, "--rounds", "-").stdout.startswith("clients,")
    for more in (["--json"], ["--confusion", "-"]):
        done = cli(*args, "-o", "-", *more)
        assert done.exit_code == USAGE
        assert done.stdout == ""
    assert not (Path.cwd() / "-").exists()


def test_no_command_replaces_a_key_or_a_record_of_a_round(copies, cli):
    """By its content under any name, by its name, and in the folder of its rounds."""
    keys = copies / "keys"
    assert cli("keys", "new", "A", "-o", keys).exit_code == 0
    private, public = keys / "A.key", keys / "A.pub"
    record = keys / "A.rounds" / "0123" / "used"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    foreign = copies / "id_ed25519.pub"
    foreign.write_text("ssh-ed25519 AAAA\n")
    renamed = shutil.copy(private, copies / "mine.json")
    evaluate = ["evaluate", copies / "head.h5", copies / "test.h5"]
    for path in (private, public, renamed, record, foreign):
        before = path.read_bytes()
        for option in ("-o", "--confusion"):
            for flags in ([], ["--overwrite"]):
                done = cli(*evaluate, option, path, *flags)
                assert done.exit_code == USAGE, (path, done.stderr)
                assert str(path) in done.stderr
                assert "no command replaces one" in done.stderr
                assert path.read_bytes() == before
