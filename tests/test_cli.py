"""What every command keeps: one result on stdout, everything else on stderr, light to start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import command_of, commands, installed
from helpers_images import write_imagefolder
from option_matrix import options
from typer.testing import CliRunner

import afltool
from afltool.cli._console import _Lines
from afltool.cli.app import RENAMED, app

#: Not "email": importlib.metadata, which finds plug-ins, loads it.
HEAVY = (
    "torch", "torchvision", "timm", "numpy", "scipy", "pandas", "h5py", "matplotlib", "sklearn",
    "PIL", "pyarrow", "cryptography", "rich", "markdown_it", "pygments", "asyncio",
    "multiprocessing", "unittest",
)  # fmt: skip


# ---------------------------------------------------------------- help and start-up


def test_help_of_every_command_and_what_needs_no_file_load_nothing_heavy():
    """One process for all: what none of them imports, each of them does without."""
    chosen = [list(p) for p in commands(command_of(app)) if p[:1] != ("baseline",)]
    assert ["head", "deepafl"] in chosen
    code = f"""
import contextlib, io, json, sys
import typer
from afltool.cli.app import app
command = typer.main.get_command(app)
def run(words, starts):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        with contextlib.suppress(SystemExit):
            command(words, prog_name="afltool")
    assert said.getvalue().startswith(starts), (words, said.getvalue())
for words in {chosen!r}:
    for ask in ("-h", "--help-all"):
        run([*words, ask], "Usage: afltool " + " ".join(words))
run(["--version"], "afltool ")
run(["nonsense"], "Usage: afltool")
print(json.dumps(sorted({set(HEAVY)!r} & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys, numpy; {code.splitlines()[-1]}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == ["numpy"], "it would notice"


def test_every_command_explains_itself_by_at_most_twelve_options(cli):
    shown = cli("-h").stdout
    for path in commands(command_of(app)):
        short, long = cli(*path, "-h"), cli(*path, "--help")
        assert (short.exit_code, long.exit_code) == (0, 0), path
        assert short.stdout == long.stdout
        assert f"Usage: {' '.join(('afltool', *path))}" in short.stdout.replace("root", "afltool")
        assert len(path) != 1 or re.search(rf"^  {path[0]} ", shown, re.M), path
        assert len(re.findall(r"^  (?:-\w, )?--", short.stdout, re.M)) <= 12, path
        if path and "[OPTIONS] COMMAND" not in short.stdout:
            every = " ".join(cli(*path, "--help-all").stdout.split())
            assert not [name for name in options(*path) if f"--{name} " not in every], path


def test_the_command_is_a_module_too(tmp_path):
    for words, code in ((["--version"], 0), (["info", str(tmp_path / "none.h5")], 3)):
        command = [sys.executable, "-m", "afltool", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        same = installed(*words)
        assert done.returncode == same.returncode == code
        assert (done.stdout, done.stderr) == (same.stdout, same.stderr)
        assert code or done.stdout == f"afltool {afltool.__version__}\n"


def test_the_exit_codes_of_the_help_are_those_of_the_errors(cli):
    from afltool import errors

    text = " ".join(cli("--help").stdout.replace("│", " ").split())
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    found = [e for e in classes if issubclass(e, errors.AflError) and e is not errors.AflError]
    assert len(found) > 5
    for error in found:
        assert f", {error.exit_code} " in text, error


@pytest.mark.parametrize("name", ["solve", "run", "slurm"])
def test_the_ridge_is_in_the_short_help_of_every_command_that_solves(cli, name):
    short = cli(name, "-h").stdout
    ridge = "".join(short.split("  --ridge <str>")[1].split("--")[0].split())
    assert "autoforgeneralisedcross-validation" in ridge
    assert "--min-norm" not in short


def test_help_is_found_wherever_it_stands_but_behind_two_dashes(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["run", "-h"], ["-q", "run", "x.toml", "--head", "x", "--help"]):
        done = cli(*words)
        assert done.exit_code == 0
        assert done.stdout.startswith("Usage: ")
        assert "--backbone" in done.stdout
    done = cli("info", "--", "-h")
    assert done.exit_code == 3
    assert "-h" in done.stderr


def test_a_group_without_a_command_shows_its_help_as_a_mistake(cli):
    for words, inside in (([], "local-stats"), (["head"], "linear"), (["plot"], "roc")):
        done = cli(*words)
        assert done.exit_code == 2
        assert re.search(rf"^  {inside} ", done.stderr, re.M)


def asking(words):
    """What bash sets when it asks the command for completions."""
    return {
        "_AFLTOOL_COMPLETE": "complete_bash", "COMP_WORDS": f"afltool {words}",
        "COMP_CWORD": str(len(f"x {words}x".split()) - 1),
    }  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), [("run --da", "--data"), ("sol", "solve")])
def test_the_shell_completes_names(words, expected):
    done = CliRunner().invoke(app, env=asking(words), prog_name="afltool")
    assert done.stdout.split() == [expected]


# ---------------------------------------------------------------- results


def makers(road, at):
    """Every command that makes files: its arguments, and its result."""
    embedded, train, stats = road.embeddings, road.train, road.stats
    silo = ["local-stats", train, "--client", "a", "--head", "linear"]
    features = ["--train-features", train, "--test-features", road.test]
    return {
        "import": (["import", embedded, "-o", at / "f.h5"], at / "f.h5"),
        "partition": (
            ["partition", train, "--scheme", "iid", "--clients", 3, "-o", at / "c.h5"], at / "c.h5",
        ),
        "head": (["head", "linear", "-o", at / "h0.h5"], at / "h0.h5"),
        "local-stats": ([*silo, "-o", at / "s"], at / "s" / "client-a.h5"),
        "local-stats --sum": ([*silo, "--sum", "-o", at / "s.h5"], at / "s.h5"),
        "aggregate": (["aggregate", stats, "-o", at / "t.h5"], at / "t.h5"),
        "solve": (["solve", road.total, "-o", at / "h.h5"], at / "h.h5"),
        "run": (["run", *features, "--clients", 3, "-o", at / "run"], at / "run"),
    }  # fmt: skip


def test_a_command_that_makes_a_file_prints_its_path_and_nothing_else(road, tmp_path, cli):
    for name, (args, out) in makers(road, tmp_path).items():
        for _ in ("made", "up to date"):
            done = cli(*args)
            assert (done.exit_code, done.stdout) == (0, f"{out}\n"), name
        assert out.exists()


def test_what_a_command_finds_as_json(road, cli):
    for args in (
        ["verify", road.total, road.stats],
        ["evaluate", road.head, road.test],
    ):
        done = cli(*args, "--json")
        assert done.exit_code == 0
        assert json.loads(done.stdout)
    for kind, path in road.of_each_kind().items():
        found = json.loads(cli("info", path, "--json").stdout)
        assert (found["kind"], found["bytes"]) == (kind, path.stat().st_size)
        assert found["digest"] == json.loads(cli("verify", path, "--json").stdout)[0]["digest"]


def test_an_extraction_prints_its_path_and_is_found_in_the_store(tmp_path, cli):
    write_imagefolder(tmp_path / "images", per_class=2, size=8)
    args = [
        "extract", "--backbone", "resnet18", "--weights", "random", "--image-size", 32, "--engine",
        "torch", "--data", f"imagefolder:{tmp_path}/images", "--store", tmp_path / "store",
    ]  # fmt: skip
    done = cli(*args)
    (path,) = (tmp_path / "store").glob("*.h5")
    assert (done.exit_code, done.stdout) == (0, f"{path}\n")
    before = path.stat().st_mtime_ns
    assert cli(*args).stdout == done.stdout
    assert path.stat().st_mtime_ns == before
    shards = [*args, "--shard", "0/1", "-o", tmp_path / "shard.h5"]
    assert cli(*shards).exit_code == 0


def test_quiet_says_nothing_but_the_result(road, tmp_path, cli):
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


# ---------------------------------------------------------------- plain output


def test_no_escape_codes_in_a_pipe(road, tmp_path):
    plain = dict.fromkeys(("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS"), "")
    for args in (
        ["evaluate", road.head, road.test],
        ["solve", road.total, "-o", tmp_path / "h.h5"],
        ["solve", tmp_path / "nowhere.h5", "-o", tmp_path / "x.h5"],
    ):
        done = installed(*args, env={**plain, "TERM": "xterm-256color"})
        assert done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr, args


# ---------------------------------------------------------------- arguments


def test_many_files_by_stdin_glob_folder_and_name(road, tmp_path, cli, monkeypatch):
    files = sorted(road.stats.iterdir())
    expected = afltool.info(road.total)["digest"]
    text = "\n".join(map(str, files)) + "\n\n"
    ways = {
        "stdin": (["-"], text),
        "glob": ([f"{road.stats}/client-*.h5"], None),
        "folder": ([road.stats], None),
        "glob of folders": ([f"{road.folder}/st?ts"], None),
        "folder on stdin": (["-"], f"{road.stats}\n"),
        "mixed": ([files[0], "-", f"{road.stats}/client-[3-5].h5"], f"{files[1]}\n{files[2]}\n"),
        "added": ([*files[1:], files[0]], None),
    }
    for way, (args, given) in ways.items():
        out = tmp_path / f"{way}.h5"
        done = cli("aggregate", *args, "-o", out, input=given)
        assert done.exit_code == 0, (way, done.stderr)
        assert afltool.info(out)["digest"] == expected, way
    monkeypatch.chdir(road.folder)
    assert cli("aggregate", "stats/*.h5", "-o", tmp_path / "relative.h5").exit_code == 0
    piped = installed("aggregate", "-", "-o", tmp_path / "piped.h5", input=text)
    assert piped.stdout == f"{tmp_path / 'piped.h5'}\n"
    assert afltool.info(tmp_path / "piped.h5")["digest"] == expected


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
    more = ["local-stats", "-", "--client", "a", "--head", road.head0, "-o", at / "one"]
    assert cli(*more, input=f"{road.train}\n").exit_code == 0
    assert cli("info", "-", input=f"{road.head}\n").exit_code == 0


@pytest.mark.parametrize(
    ("words", "lines", "code", "said"),
    [
        (["solve", "-"], "", 3, "expected a path for total, found none"),
        (["solve", "-"], "a.h5\nb.h5\n", 3, "expected one path for total, found 2"),
        (["solve", "-", "--head", "-"], "a.h5\n", 2, "give it once"),
        (["aggregate", "-", "-"], "a.h5\n", 2, "give it once"),
        (["solve", "-"], "nowhere.h5\n", 3, "there is no file nowhere.h5"),
    ],
)
def test_a_pipe_gives_one_path_for_one_file(words, lines, code, said, tmp_path, cli):
    """A command that fails prints no path: the one behind it ends with exit 3."""
    done = cli(*words, "-o", tmp_path / "o.h5", input=lines)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "o.h5").exists()


@pytest.mark.parametrize("given", [["*"], ["nothing-*.h5"], ["-"], ["a**b.h5"]])
def test_files_that_are_not_there(given, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("aggregate", *given, "-o", tmp_path / "o.h5", input="")
    assert done.exit_code in (2, 3)
    assert done.stderr.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_usage_errors_that_list_the_known_ones(road, tmp_path, cli):
    out = ["-o", tmp_path / "o.h5"]
    cases = [
        (["partition", road.train, "--scheme", "dirichle"], ["dirichlet", "shards"]),
        (["local-stats", road.train, "--client", "a", "--head", "linaer"], ["linear"]),
        (["head", "linaer"], ["linaer"]),
        (["extract", "--backbone", "resnet19", "--data", "digits"], ["resnet18", "resnet19"]),
        (["extract", "--backbone", "resnet18", "--data", "mnist"], ["cifar10", "mnist"]),
        (["local-stats", road.train, "--head", "linear"], ["--partition FILE", "--client NAME"]),
        (["local-stats", road.train, "--head", road.head, "--client", "a"], ["is solved"]),
        (["local-stats", road.train, "--partition", road.clients, "--head", "linear", "--only",
          "3-9"], ["numbered 0 to 5"]),
    ]  # fmt: skip
    for args, fragments in cases:
        done = cli(*args, *out)
        assert done.exit_code == 2, (args, done.stderr)
        for fragment in fragments:
            assert fragment in " ".join(done.stderr.split()), args
        assert done.stdout == ""
    assert not list(tmp_path.iterdir())


#: A command that an old option is tried with, where it is not one command's.
OLD_OF = {
    "--lr-rounds": "baseline fedavg",
    "--stack": "baseline fedavg",
    "--single-round": "head linear",
}


@pytest.mark.parametrize("name", RENAMED)
def test_an_old_name_is_refused_with_the_new_one(name, cli):
    words = name.split()
    if name.startswith("--"):
        words = ([] if name == "--summary" else OLD_OF.get(name, "solve").split()) + [name]
    done = cli(*words, *(["value"] if "--" in name else []))
    assert (done.exit_code, done.stdout) == (2, "")
    said = " ".join(done.stderr.split())
    assert said.endswith(f"Error: {RENAMED[name]}"), said
    assert "Possible" not in said


#: Commands with each file that they read as {…}.
READERS = (
    "import {embeddings}", "convert {train}", "split {train}", "scale {train}",
    "partition {train} --scheme iid --clients 3",
    "local-stats {train} --head {head0} --partition {clients}", "aggregate {stats}",
    "solve {total} --head {head0}", "solve {total} --validate {total}",
    "evaluate {head} {test} --against {head}", "calibrate {head} {total}", "predict {head} {test}",
    "export {head}", "run --train-features {train} --test-features {test} --partition {clients}",
    "merge {train}",
)  # fmt: skip


@pytest.mark.parametrize("line", READERS)
def test_files_that_are_not_what_a_command_reads_end_it_with_their_name(line, road, tmp_path, cli):
    """Missing, empty, a folder, of another kind, or not of afltool: never a traceback."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.h5").write_text("text")
    (tmp_path / "empty.h5").touch()
    wrong = {"none.h5": (3,), "": (2, 3), "folder": (2, 3), "text.h5": (2, 3), "empty.h5": (2, 3)}
    out = {"predict": "o.csv", "export": "o.onnx"}.get(line.split()[0], "o.h5")
    before = sorted(tmp_path.iterdir())
    for role in dict.fromkeys(re.findall(r"{(\w+)}", line)):
        others = [p for k, p in road.of_each_kind().items()]
        for given, codes in wrong.items():
            path = tmp_path / given if given else ""
            files = {k: str(v) for k, v in vars(road).items()} | {role: str(path)}
            words = [word.format(**files) for word in line.split()]
            done = cli(*words, "-o", tmp_path / out)
            assert done.exit_code in codes, (words, done.stderr)
            assert given in done.stderr or not given
            assert done.stdout == ""
        kinds = [
            cli(*(w.format(**{**vars(road), role: other}) for w in line.split()), "-o",
                tmp_path / out)
            for other in others if other != vars(road)[role] and role not in ("test", "train")
        ]  # fmt: skip
        refused = [one for one in kinds if one.exit_code]
        assert all(one.exit_code in (2, 3, 4) and one.stderr for one in refused)
        assert len(refused) >= len(kinds) - 2, (role, line)
    left = [p for p in tmp_path.iterdir() if p not in before and p.stem != "o"]
    assert left == []


@pytest.mark.parametrize("path", ["info", "solve", "run", "head linear", "aggregate", "study"])
def test_an_unknown_option_and_an_argument_too_many_are_usage_errors(path, cli):
    for more in (["--no-such=1"], ["a", "b", "c", "d"]):
        done = cli(*path.split(), *more)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


def test_no_command_asks_anything(road, tmp_path):
    """Prompts would hang a batch job: stdin is closed, and everything still ends."""
    out = tmp_path / "o.h5"
    out.write_text("something else")
    done = installed("solve", road.total, "-o", out, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert out.read_text() == "something else"
    assert os.listdir(tmp_path) == ["o.h5"]


# ---------------------------------------------------------------- signals before the work

SIGNAL_AT_IMPORT = """
import os, sys
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


@pytest.mark.parametrize("module", ["typer", "afltool.cli.commands", "h5py"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_modules_load_is_no_traceback(module, number, tmp_path):
    args = [module, str(int(number)), "solve", str(tmp_path / "x.h5"), "-o", str(tmp_path / "y.h5")]
    done = subprocess.run(
        [sys.executable, "-c", SIGNAL_AT_IMPORT, *args],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    before_the_work = module != "h5py"
    if number == signal.SIGINT or before_the_work:
        assert done.returncode == (130 if number == signal.SIGINT else 75)
        assert done.stderr.startswith("interrupted")
    else:  # it is heard at the next safe place; here the command ends before, as x.h5 is missing
        assert done.returncode in (75, 3)


def test_an_interrupt_where_python_ignores_exceptions_comes_again(tmp_path):
    """As in a callback of the collector; and nobody is shown a traceback."""
    lost = "type('_', (), {'__del__': lambda self: os.kill(os.getpid(), number)})()"
    wait = "for _ in range(3000): time.sleep(0.01)"
    code = SIGNAL_AT_IMPORT.replace("os.kill(os.getpid(), number)", f"{lost}\n            {wait}")
    done = subprocess.run(
        [sys.executable, "-c", code.replace("import os", "import os, time"), "h5py",
         str(int(signal.SIGINT)), "solve", str(tmp_path / "x.h5"), "-o", str(tmp_path / "y.h5")],
        capture_output=True, text=True, timeout=50, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("interrupted; a file")
