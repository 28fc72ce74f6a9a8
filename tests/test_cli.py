"""What every command keeps: one result on stdout, everything else on stderr, light to start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import COMMAND, command_of, commands, installed
from helpers_images import write_imagefolder

import afltool
from afltool.cli.app import app

HEAVY = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "pandas",
    "h5py",
    "matplotlib",
    "timm",
    "sklearn",
)


# ---------------------------------------------------------------- help and start-up


@pytest.mark.parametrize(
    "args", [["--help"], ["-h"], ["--version"], ["solve", "-h"], ["run", "--help"], ["nonsense"]]
)
def test_help_and_version_load_nothing_heavy(args):
    code = f"""
import json, sys
sys.argv = ["afltool", *{args!r}]
from afltool.cli import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_check_of_what_is_loaded_would_notice():
    code = f"import json, sys, numpy; print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["numpy"]


@pytest.mark.parametrize("path", list(commands(command_of(app))), ids=" ".join)
def test_every_command_explains_itself(path, cli):
    short, long = cli(*path, "-h"), cli(*path, "--help")
    assert (short.exit_code, long.exit_code) == (0, 0)
    assert short.stdout == long.stdout
    assert f"Usage: {' '.join(('afltool', *path))}" in short.stdout.replace("root", "afltool")


def test_version_is_that_of_the_package():
    done = installed("--version")
    assert (done.returncode, done.stdout) == (0, f"afltool {afltool.__version__}\n")


def test_the_command_is_a_module_too(tmp_path):
    for words, code in ((["--version"], 0), (["info", str(tmp_path / "none.h5")], 3)):
        command = [sys.executable, "-m", "afltool", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        same = installed(*words)
        assert done.returncode == same.returncode == code
        assert (done.stdout, done.stderr) == (same.stdout, same.stderr)


def test_the_exit_codes_of_the_help_are_those_of_the_errors(cli):
    from afltool import errors

    text = " ".join(cli("--help").stdout.replace("│", " ").split())
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    found = [e for e in classes if issubclass(e, errors.AflError) and e is not errors.AflError]
    assert len(found) > 5
    for error in found:
        assert f", {error.exit_code} " in text, error


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


def test_every_result_as_json(road, tmp_path, cli):
    for name, (args, out) in makers(road, tmp_path).items():
        done = cli(*args, "--json")
        found = json.loads(done.stdout)
        assert done.exit_code == 0, name
        assert found["path"] == str(out), name
    for args in (
        ["info", road.total],
        ["verify", road.total, road.stats],
        ["evaluate", road.head, road.test],
        ["partition", road.clients, "--describe"],
    ):
        done = cli(*args, "--json")
        assert done.exit_code == 0
        assert json.loads(done.stdout)


def test_json_of_info_has_the_digest_and_the_kind_of_every_file(road, cli):
    for kind, path in road.of_each_kind().items():
        found = json.loads(cli("info", path, "--json").stdout)
        assert (found["kind"], found["bytes"]) == (kind, path.stat().st_size)
        assert found["digest"] == json.loads(cli("verify", path, "--json").stdout)[0]["digest"]


def test_json_through_a_pipe(road):
    done = subprocess.run(
        f"{COMMAND} evaluate {road.head} {road.test} --json | {sys.executable} -m json.tool",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_an_extraction_prints_its_path_or_json_and_is_found_in_the_store(tmp_path, cli):
    write_imagefolder(tmp_path / "images", per_class=2, size=8)
    args = [
        "extract", "--backbone", "resnet18", "--weights", "random", "--image-size", 32, "--engine",
        "torch", "--data", f"imagefolder:{tmp_path}/images", "--store", tmp_path / "store",
    ]  # fmt: skip
    done = cli(*args)
    (path,) = (tmp_path / "store").glob("*.h5")
    assert (done.exit_code, done.stdout) == (0, f"{path}\n")
    before = path.stat().st_mtime_ns
    assert json.loads(cli(*args, "--json").stdout)["rows"] == 6
    assert path.stat().st_mtime_ns == before
    shards = [*args, "--shard", "0/1", "-o", tmp_path / "shard.h5"]
    assert cli(*shards).exit_code == 0


def test_a_reader_that_leaves_early_is_no_error(road):
    done = subprocess.run(
        f"{COMMAND} info {road.stats}/client-0.h5 --json | head -c 1",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("{", "")


def test_quiet_says_nothing_but_the_result(road, tmp_path, cli):
    loud = cli("solve", road.total, "-o", tmp_path / "a.h5")
    quiet = cli("-q", "solve", road.total, "-o", tmp_path / "b.h5")
    assert "condition number" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == (f"{tmp_path / 'b.h5'}\n", "")


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


@pytest.fixture
def bracketed(tmp_path):
    """Features whose class names look like rich's markup."""
    rng = np.random.default_rng(0)
    y = np.array(["[bold]a[/bold]", "b[/]", "c"])[rng.integers(0, 3, 60)]
    np.savez(tmp_path / "e.npz", x=rng.normal(size=(60, 4)), y=y)
    return afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "f.h5")


def test_names_with_markup_are_shown_as_they_are(bracketed, tmp_path, cli):
    total = afltool.local_stats(bracketed, "linear", tmp_path / "t.h5", client="[red]x", sum=True)
    assert "[bold]a[/bold], b[/], c" in cli("info", bracketed).stdout
    assert "[red]x" in cli("info", total).stdout


def test_an_evaluation_shows_names_with_markup_as_they_are(bracketed, tmp_path, cli):
    total = afltool.local_stats(bracketed, "linear", tmp_path / "t.h5", client="a", sum=True)
    done = cli("evaluate", afltool.solve(total, tmp_path / "h.h5"), bracketed)
    assert done.exit_code == 0
    assert "[bold]a[/bold]" in done.stdout


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
        (["import", road.embeddings, "--dtype", "int8"], ["int16 or float32", "int8"]),
        (["import", road.embeddings, "--fraction-bits", 16], ["0 to 15", "16"]),
        (["extract", "--backbone", "resnet19", "--data", "digits"], ["resnet18", "resnet19"]),
        (["extract", "--backbone", "resnet18", "--data", "mnist"], ["cifar10", "mnist"]),
        (["extract", "--backbone", "resnet18", "--data", "digits", "--shard", "4/4"], ["I/N"]),
        (["extract", "--backbone", "resnet18", "--data", "digits", "--workers", 0], ["--workers"]),
        (["solve", road.total, "--ridge", "-1"], ["ridge is a number ≥ 0", "-1"]),
        (["local-stats", road.train, "--head", "linear"], ["--partition FILE", "--client NAME"]),
        (["local-stats", road.train, "--head", road.head, "--client", "a"], ["is solved"]),
        (["local-stats", road.train, "--partition", road.clients, "--head", "linear", "--only",
          "3-9"], ["numbered 0 to 5"]),
        (["aggregate", road.total, "--law", "magic"], ["sum or pairwise"]),
    ]  # fmt: skip
    for args, fragments in cases:
        done = cli(*args, *out)
        assert done.exit_code == 2, (args, done.stderr)
        for fragment in fragments:
            assert fragment in " ".join(done.stderr.split()), args
        assert done.stdout == ""
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("module", ["typer", "afltool.cli.road", "h5py"])
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
