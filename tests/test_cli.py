"""What every command keeps: one result on stdout, everything else on stderr, light to start."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest
from conftest import HEAVY, command_of, commands, in_turn, installed
from helpers_images import write_imagefolder
from option_matrix import command, options
from typer.testing import CliRunner

import afltool
from afltool import errors
from afltool.cli._console import _Lines
from afltool.cli.app import app
from afltool.renamed import RENAMED

# ---------------------------------------------------------------- help and start-up


SHORT = "solve", "run", "slurm"  # some of which -h shows a part


def test_every_command_explains_itself_by_at_most_twelve_options_and_loads_nothing_heavy():
    """In one process for all: what none of them imports, each of them does without."""
    paths = [p for p in commands(command_of(app)) if p[:1] != ("baseline",)]
    assert ("head", "deepafl") in paths
    groups = {path for path in paths if hasattr(command(*path), "list_commands")}
    asked = [(*path, "-h" if path in groups else "--help-all") for path in paths]
    found = in_turn([*asked, *([name, "-h"] for name in SHORT), ["--version"], ["nonsense"]])
    assert found[-2][:2] == [f"afltool {afltool.__version__}\n", []]
    assert found[-1][0].startswith("Usage: afltool")
    said = [" ".join(one.split()) for one, *_ in found]
    for path, page in zip(paths, said, strict=False):
        assert page.startswith("Usage: " + " ".join(("afltool", *path))), path
        assert len(path) != 1 or re.search(rf"^  {path[0]} ", found[0][0], re.M), path
        few = [p for p in command(*path).params if p.opts[0][0] == "-" and not p.hidden]
        assert len(few) < 12, path  # and --help
        if path not in groups:
            assert not [name for name in options(*path) if f"--{name} " not in page], path
    for page, *_ in found[-2 - len(SHORT) : -2]:
        assert len(re.findall(r"^  (?:-\w, )?--", page, re.M)) <= 12, page
        ridge = "".join(page.split("  --ridge <str>")[1].split("--")[0].split())
        assert "autoforgeneralizedcross-validation" in ridge
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    codes = {e.exit_code for e in classes if issubclass(e, errors.AflError)} - {1}
    assert len(codes) > 4
    assert not [code for code in codes if f", {code} " not in said[0]]


def test_a_command_loads_no_other_part_and_no_linear_algebra_that_it_does_not_need(road, tmp_path):
    features = ["--train-features", road.train, "--test-features", road.test, "--clients", 3]
    stats = ["local-stats", road.train, "--head", road.head0, "--partition", road.clients]
    found = in_turn([
        ["solve", "-h"], ["info", road.total], ["evaluate", road.head, road.test],
        [*stats, "-o", tmp_path / "stats"],
        ["aggregate", tmp_path / "stats", "-o", tmp_path / "total.h5"],
        ["solve", tmp_path / "total.h5", "-o", tmp_path / "head.h5"],
        ["predict", tmp_path / "head.h5", road.test, "-o", tmp_path / "rows.csv"],
        ["verify", tmp_path / "total.h5"], ["run", *features, "-o", tmp_path / "run"],
        ["plot", "rounds", "-h"], ["study", "-h"],
    ])  # fmt: skip
    assert not {"afltool.runs.config", "afltool.stages.stage"} & {*found[0][2]}
    for said, heavy, _ in found[:3]:
        assert not {"pandas", *HEAVY[-4:]} & {*heavy}, said
    loaded = [{part.split(".")[1] for part in parts} for _, _, parts in found]
    assert not any({"lab", "federation"} & parts for parts in loaded[:-1])
    assert "lab" in loaded[-1]
    private = {"cryptography", "nacl", "bcrypt", "fsspec", "mlflow"}
    assert not any(private & {*heavy} for _, heavy, _ in found)
    assert (tmp_path / "run" / "summary.json").exists(), "the premise: they work"


def test_the_command_is_a_module_too_and_writes_no_escape_codes_into_a_pipe(road):
    plain = dict.fromkeys(("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS"), "")
    words = ("evaluate", str(road.head), str(road.test))
    same = installed(*words, env={**plain, "TERM": "xterm-256color"})
    command = [sys.executable, "-m", "afltool", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == same.returncode == 0
    assert (done.stdout, done.stderr) == (same.stdout, same.stderr)
    assert "top-1" in same.stdout
    assert "\x1b" not in same.stdout + same.stderr


def test_help_is_found_wherever_it_stands_but_behind_two_dashes(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["run", "--help"], ["-q", "run", "x.toml", "--head", "x", "-h"], ["help", "run"]):
        done = cli(*words)
        assert done.exit_code == 0
        assert done.stdout.startswith("Usage: ")
        assert "--backbone" in done.stdout
    assert cli("version").stdout == cli("--version").stdout
    done = cli("info", "--", "-h")
    assert done.exit_code == 3
    assert "-h" in done.stderr
    for words, inside in (([], "local-stats"), (["head"], "linear"), (["plot"], "confusion")):
        done = cli(*words)  # a group without a command is a mistake
        assert done.exit_code == 2
        assert re.search(rf"^  {inside} ", done.stderr, re.M)


@pytest.mark.parametrize(("words", "expected"), [("run --da", "--data"), ("sol", "solve")])
def test_the_shell_completes_names(words, expected):
    asking = {"_AFLTOOL_COMPLETE": "complete_bash", "COMP_WORDS": f"afltool {words}",
              "COMP_CWORD": str(len(f"x {words}x".split()) - 1)}  # fmt: skip
    done = CliRunner().invoke(app, env=asking, prog_name="afltool")
    assert done.stdout.split() == [expected]


# ---------------------------------------------------------------- results


def test_a_command_that_makes_a_file_prints_its_path_and_nothing_else(road, tmp_path, cli):
    at, train = tmp_path, road.train
    silo = ["local-stats", train, "--client", "a", "--head", "linear"]
    features = ["--train-features", train, "--test-features", road.test]
    images = write_imagefolder(at / "images", per_class=2, size=8)
    extract = ["extract", "--backbone", "timm:test_resnet", "--weights", "random", "--image-size",
               32, "--engine", "torch", "--data", f"imagefolder:{images}"]  # fmt: skip
    makers = {
        "f.h5": ["import", road.embeddings],
        "c.h5": ["partition", train, "--scheme", "iid", "--clients", 3],
        "h0.h5": ["head", "linear"],
        "s/client-a.h5": silo,
        "s.h5": [*silo, "--sum"],
        "t.h5": ["aggregate", road.stats],
        "h.h5": ["solve", road.total],
        "run": ["run", *features, "--clients", 3],
        "shard.h5": [*extract, "--shard", "0/1"],
    }
    for name, args in makers.items():
        for _ in ("made", "up to date"):
            done = cli(*args, "-o", at / name.removesuffix("/client-a.h5"))
            assert (done.exit_code, done.stdout) == (0, f"{at / name}\n"), name
        assert (at / name).exists()
    for _ in ("made", "found in the store"):
        done = cli(*extract, "--store", at / "store")
        (path,) = (at / "store").glob("*.h5")
        assert (done.exit_code, done.stdout) == (0, f"{path}\n")


def test_what_a_command_finds_as_json_and_quietly(road, tmp_path, cli):
    assert len(json.loads(cli("verify", road.total, road.stats, "--json").stdout)) == 7
    for kind, path in road.of_each_kind().items():
        found = json.loads(cli("info", path, "--json").stdout)
        assert (found["kind"], found["bytes"]) == (kind, path.stat().st_size)
        assert found["digest"] == json.loads(cli("verify", path, "--json").stdout)[0]["digest"]
    loud = cli("solve", road.total, "-o", tmp_path / "a.h5")
    quiet = cli("-q", "solve", road.total, "-o", tmp_path / "b.h5")
    assert "condition number" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == (f"{tmp_path / 'b.h5'}\n", "")


def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch, capsys):
    """Of slow work alone: with its rate and the time left, and once more at its end."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    quick, slow = (_Lines("read", 10, "files", 0) for _ in range(2))
    quick.advance(10)
    quick.finish()
    assert capsys.readouterr().err == ""
    for now[0] in (3.0, 6.0):
        slow.advance(2)
    slow.finish()
    assert capsys.readouterr().err == "read: 4/10 files, 0.7 files/s, 9 s left\n" * 2


# ---------------------------------------------------------------- arguments


def test_many_files_by_stdin_folder_and_name(road, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(road.folder)
    files = sorted(road.stats.iterdir())
    expected = afltool.info(road.total)["digest"]
    text = "\n".join(map(str, files)) + "\n\n"
    ways = {
        "stdin": (["-"], text),
        "folders": (["stats"], None),
        "mixed": ([files[0], "-", *files[3:]], f"{files[1]}\n{files[2]}\n"),
        "added": ([*files[1:], files[0]], None),
    }
    for way, (args, given) in ways.items():
        done = cli("aggregate", *args, "-o", tmp_path / f"{way}.h5", input=given)
        assert done.exit_code == 0, (way, done.stderr)
        assert afltool.info(tmp_path / f"{way}.h5")["digest"] == expected, way
    piped = installed("aggregate", "-", "-o", tmp_path / "piped.h5", input=text)
    assert piped.stdout == f"{tmp_path / 'piped.h5'}\n"


def test_six_stages_run_in_one_pipeline(road, tmp_path, cli):
    """What a command prints is an input of the next one, of whatever kind; with equal digests."""
    at, said = tmp_path, ""
    for words in (
        ["import", road.embeddings, "-o", at / "train.h5"],
        ["partition", "-", "--alpha", 0.5, "--clients", 6, "-o", at / "clients.h5"],
        ["local-stats", at / "train.h5", "--partition", "-", "--head", road.head0, "-o", at / "s"],
        ["aggregate", "-", "-o", at / "total.h5"],
        ["solve", "-", "-o", at / "head.h5"],
        ["evaluate", "-", road.test, "--json"],
    ):
        done = cli(*words, input=said)
        assert done.exit_code == 0, done.stderr
        said = done.stdout
    assert json.loads(said)["top1"] == afltool.evaluate(road.head, road.test)["top1"]
    ours, theirs = (afltool.info(one / "head.h5")["digest"] for one in (at, road.folder))
    assert ours == theirs


@pytest.mark.parametrize(("words", "lines", "code", "said"), [
    ("solve -", "", 3, "expected a path for total, found none"),
    ("solve -", "a.h5\nb.h5\n", 3, "expected one path for total, found 2"),
    ("solve - --head -", "a.h5\n", 2, "give it once"),
    ("solve -", "nowhere.h5\n", 3, "there is no file nowhere.h5"),
    ("aggregate *", "", 3, "error: "),
    ("aggregate nothing-*.h5", "", 3, "error: "),
    ("aggregate -", "", 3, "error: "),
])  # fmt: skip
def test_a_pipe_gives_one_path_for_one_file(words, lines, code, said, tmp_path, cli, monkeypatch):
    """A command that fails prints no path: the one behind it ends with exit 3."""
    monkeypatch.chdir(tmp_path)
    done = cli(*words.split(), "-o", "o.h5", input=lines)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


#: A command that an old option is tried with, where it is not one command's.
OLD_OF = {"--lr-rounds": "baseline fedavg", "--stack": "baseline fedavg",
          "--single-round": "head linear", "--summary": ""}  # fmt: skip


def test_an_old_name_is_refused_with_the_new_one(cli):
    for name in RENAMED:
        words = [*OLD_OF.get(name, "solve").split(), name] if name[0] == "-" else name.split()
        done = cli(*words, *(["value"] if "--" in name else []))
        assert (done.exit_code, done.stdout) == (2, ""), name
        said = " ".join(done.stderr.split())
        assert said.endswith(f"Error: {name.split()[-1]} is {RENAMED[name]}"), said
        assert "Possible" not in said


# ---------------------------------------------------------------- signals before the work

SIGNAL_AT_IMPORT = """
import os, sys, time
module, number = sys.argv.pop(1), int(sys.argv.pop(1))
class AtImport:
    def find_spec(self, name, *_):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, AtImport())
from afltool.cli import main
main()
"""


def heard(module, number, code=SIGNAL_AT_IMPORT):
    """What a command does that gets a signal while it loads a module; its file is missing."""
    done = subprocess.run(
        [sys.executable, "-c", code, module, str(int(number)), "solve", "x.h5", "-o", "y.h5"],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(("module", "number", "codes"), [
    ("typer", signal.SIGTERM, {75}), ("afltool.cli.commands", signal.SIGUSR1, {75}),
    ("afltool.cli.commands", signal.SIGINT, {130}), ("h5py", signal.SIGINT, {130}),
    ("h5py", signal.SIGTERM, {75, 3}),  # at the next safe place; the command may end before
])  # fmt: skip
def test_a_signal_while_modules_load_is_no_traceback(module, number, codes):
    done = heard(module, number)
    assert done.returncode in codes
    assert 3 in codes or done.stderr.startswith("interrupted")


def test_an_interrupt_where_python_ignores_exceptions_comes_again():
    """As in a callback of the collector; and nobody is shown a traceback."""
    lost = "type('_', (), {'__del__': lambda self: os.kill(os.getpid(), number)})()"
    wait = "for _ in range(3000): time.sleep(0.01)"
    again = SIGNAL_AT_IMPORT.replace("os.kill(os.getpid(), number)", f"{lost}\n            {wait}")
    done = heard("h5py", signal.SIGINT, again)
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("interrupted; a file")
