"""Shared fixtures: the command line in process and installed, and one small road of files."""

from __future__ import annotations

import cProfile
import gc
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import urllib.response
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

# Before any numerical library loads: the tests run two at a time on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest
import typer.testing
from typer.testing import CliRunner

import afltool
from afltool import progress
from afltool.cli.commands import Command
from afltool.errors import StoppedError
from afltool.files.heads import load_solved_head
from afltool.heads.evaluation import Evaluation
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.execution import carry_out
from afltool.lab.studies.options import StudyOptions
from afltool.lab.studies.spec import Study, read_study
from afltool.options.evaluation import Counts
from afltool.stages.local_stats import make_job
from afltool.stages.runner import Files, make

os.fsync = lambda _: None  # nothing here survives a power cut, nor has to
gc.set_threshold(100_000, 10, 10)  # a tenth of the time was the collector's

COMMAND = Path(sys.executable).with_name("afltool")
# Commands that are told to a user begin with `afltool`; tests run them as in an activated
# environment, however the test runner was started.
os.environ["PATH"] = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"

# A machine under load is slow, not wrong.
hypothesis.settings.register_profile("afltool", deadline=None)
hypothesis.settings.load_profile("afltool")

#: An app's command, made once: its hundreds of options take longer than most commands themselves.
command_of = cache(typer.main.get_command)
typer.testing._get_command = command_of  # which makes it again for every call


build, built = Command.build, dict[Any, Any]()


def build_once(command: Command, name: str, words: Sequence[str]) -> Any:
    """A command for the words that say which options it has; --help-all changes what it gets."""
    head = [pair for pair in pairwise([*words, ""]) if pair[0].partition("=")[0] == "--head"]
    key = command.about, name, str(head)
    if key not in built or "--help-all" in words:
        built[key] = build(command, name, words)
    return built[key] if "--help-all" not in words else built.pop(key)


Command.build = build_once


def inside(command: Any) -> dict[str, Any]:
    """The commands of a group by name, which are built when they are asked for."""
    names = getattr(command, "list_commands", lambda _: ())(None)
    return {name: command.get_command(None, name) for name in names}


def commands(command: Any, path: tuple[str, ...] = ()):
    """Every command and group of commands below one, as what is typed after `afltool`."""
    yield path
    for name, inner in inside(command).items():
        yield from commands(inner, (*path, name))


def embeddings(path: Path, n: int, d: int = 8, classes: int = 4, seed: int = 0, **arrays: Any):
    """A .npz of n well-conditioned rows that a linear head can tell apart; returns its path."""
    rng = np.random.default_rng([seed, n])
    y = rng.integers(0, classes, n)
    x = rng.normal(size=(n, d)) + 3 * np.random.default_rng(7).normal(size=(classes, d))[y]
    np.savez(path, **{"x": x, "y": y, **arrays})
    return path


@dataclass(frozen=True)
class Road:
    """One file of every kind, made from the same rows; tests read these and write elsewhere."""

    folder: Path
    embeddings: Path
    train: Path
    test: Path
    clients: Path
    head0: Path
    stats: Path
    total: Path
    head: Path

    @property
    def words(self) -> list[Any]:
        """The rows as options of `run`."""
        return ["--train-features", self.train, "--test-features", self.test]

    def config(self, **more: Any) -> afltool.RunConfig:
        """A run of these rows, by default of 6 clients."""
        given = {"train_features": self.train, "test_features": self.test, "clients": 6}
        return afltool.RunConfig(**{**given, **more})

    def of_each_kind(self) -> dict[str, Path]:
        return {
            "features": self.train,
            "partition": self.clients,
            "statistics": self.total,
            "head": self.head,
        }


def pytest_collection_finish():
    """What the modules made stays: the collector looks at what the tests make."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def signals_are_heard():
    """A shell that starts jobs in the background has them ignore SIGINT, which is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def road(tmp_path_factory) -> Road:
    """600 training rows of 8 features and 4 classes, dealt to 6 clients, solved."""
    at = tmp_path_factory.mktemp("road")
    embedded = embeddings(at / "train.npz", 600)
    train = afltool.import_embeddings(embedded, at / "train.h5")
    test = afltool.import_embeddings(embeddings(at / "test.npz", 200), at / "test.h5")
    clients = afltool.partition(train, at / "clients.h5", alpha=0.5, clients=6)
    head0 = afltool.head("linear", at / "head0.h5", head_options={"ridge": 0})
    stats = afltool.local_stats(train, head0, at / "stats", partition=clients)
    total = afltool.aggregate([stats], at / "total.h5")
    head = afltool.solve(total, at / "head.h5")
    return Road(at, embedded, train, test, clients, head0, stats, total, head)


@pytest.fixture(scope="session")
def done_run(road, tmp_path_factory):
    """``done_run(head="safle")``: the finished run of the road's rows, made once for such options.

    A test that changes it changes a copy.
    """

    @cache
    def run_of(**options: Any) -> Path:
        at = tmp_path_factory.mktemp("run") / "RUN"
        return afltool.run(road.config(**{"clients": 3, **options}), at)

    return run_of


@pytest.fixture(scope="session")
def digits():
    """1,797 digits of 64 pixels from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X / 16, y


#: How a study on the road's rows begins.
GIVEN = 'train-features = "{train}"\ntest-features = "{test}"\nclients = 6\n'
#: A study of runs of one round and of several, and of a baseline, with names to be escaped.
STUDY = f"""{GIVEN}
seed = [0, 1]
alpha = [0.1, 1]

[study]
title = "A <b>study</b> & more"
shows = "What </script> is shown."
rows = "head,layers"
columns = "alpha"
layers = "0,1"

[[method]]
label = "AFL <i>"
head = "linear"
[[method]]
label = "_Deep | 100%, $x$"
head = "deepafl"
layers = 1
width = 8
each-round = true
train-accuracy = true
[[method]]
baseline = "fedavg"
rounds = 2
threads = 1
"""


@pytest.fixture
def described(road, tmp_path):
    """``described(text, name)``: the file of a study on the road's rows."""

    def write(text: str = STUDY, name: str = "small") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(text.format(train=road.train, test=road.test))
        return path

    return write


@pytest.fixture(scope="session")
def done_study(road, tmp_path_factory) -> Path:
    """`STUDY` carried out once; a test that changes it changes a `copied_study`."""
    at = tmp_path_factory.mktemp("study")
    (at / "small.toml").write_text(STUDY.format(train=road.train, test=road.test))
    return carried_out(read_study(at / "small.toml"), at / "S")


@pytest.fixture
def copied_study(done_study, tmp_path) -> Path:
    return shutil.copytree(done_study, tmp_path / "S", copy_function=shutil.copy2)


@pytest.fixture(scope="session", autouse=True)
def one_store(tmp_path_factory):
    """Graphs of networks are made once; nothing is written where the tests are started."""
    at = tmp_path_factory.getbasetemp()  # of one worker: what they have in common is above it
    shared = at.parent if "PYTEST_XDIST_WORKER" in os.environ else at
    os.environ["AFLTOOL_STORE"] = str(shared / "store")


@pytest.fixture(scope="session", autouse=True)
def each_random_network_is_drawn_once():
    """Copies of networks by name, size and seed: drawing them takes as long as using them here."""
    from copy import deepcopy

    from afltool.backbones.families import TorchvisionSource

    build, drawn = TorchvisionSource.build, {}

    def copied(source, image_size):
        import torch

        key = source.name, image_size, torch.initial_seed()
        if key not in drawn:
            drawn[key] = build(source, image_size)
        return deepcopy(drawn[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchvisionSource, "build", copied)
        yield


@contextmanager
def command_line():
    """In this block ``run("info", path, "--json")`` runs a command in this process.

    An exception that the command line does not turn into a message fails the test.
    """
    from afltool.cli.app import app

    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)}
    logger, reporter = logging.getLogger("afltool"), progress._reporter
    before = logger.handlers, logger.propagate, logger.level

    def run(*args: Any, input: str | None = None):
        return CliRunner().invoke(app, [str(a) for a in args], input=input, catch_exceptions=False)

    try:
        yield run
    finally:
        progress.set_reporter(reporter)
        logger.handlers, logger.propagate, logger.level = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def cli():
    """``cli("info", path, "--json")`` runs a command, as `command_line`; `.stdout`, `.exit_code`"""
    with command_line() as run:
        yield run


def carried_out(wanted: Study, out: str | Path, **options: Any) -> Path:
    """A study that is read, or made of one, as `afltool.study` carries out one of a file."""
    return carry_out(wanted, StudyFolder(out), StudyOptions(**options))


def counts_of_heads(heads: Sequence[Path], rows: Path, out: Path, **options: Any) -> Path:
    """The counts of several heads in one round, as `evaluate --counts --beside` of 0.3 made."""
    loaded = [load_solved_head(head) for head in heads]
    task = Evaluation.of([one.head for one in loaded], None, (), 10)
    if "partition" not in options:
        options = {"client": "all", **options}
    o = Counts(heads[0], rows, out, **options)
    with Files().reading() as files:
        job = make_job(o, (task, loaded[0].header), files)
        make(job, overwrite=True)
    return job.result or job.targets[-1].path


def forget_stop() -> None:
    """Forget that a stop was asked for: a process that was asked ends, the tests' goes on."""
    progress._stop_reason = None


class Watched:
    """The progress of stages: ``begun`` holds (title, units, done before) of each task so far.

    ``at(n, act)`` calls ``act`` once, when n units of a task are done: a moment under way.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.done, self.moment, self.act = 0, 0, None

    def __call__(self, title: str, total: int, unit: str, done: int) -> Watched:
        self.begun.append((title, total, done))
        self.done = done
        return self

    def advance(self, n: int = 1) -> None:
        self.done += n
        if self.act is not None and self.done >= self.moment:
            act, self.act = self.act, None
            act()

    def finish(self) -> None: ...

    def at(self, moment: int, act: Callable[[], object]) -> None:
        self.moment, self.act = moment, act

    @contextmanager
    def stopped_at(self, moment: int):
        """A request to stop comes when so many units are done, and ends the stage in the block."""
        self.at(moment, lambda: progress.request_stop("a test"))
        try:
            with pytest.raises(StoppedError):
                yield
        finally:
            forget_stop()

    @contextmanager
    def killed_at(self, moment: int):
        """The stage in the block dies without cleaning up when so many units are done."""
        self.at(moment, die)
        with pytest.raises(KeyboardInterrupt):
            yield


def die() -> None:
    raise KeyboardInterrupt


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often each function was called in this thread while ``work()`` ran, by its name."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found: Counter[str] = Counter()
    for entry in profile.getstats():
        code: Any = entry.code
        found[code if isinstance(code, str) else code.co_qualname] += entry.callcount
    return found


@pytest.fixture
def watched():
    """What stages of this process tell of their progress; see `Watched`."""
    before, seen = progress._reporter, Watched()
    progress.set_reporter(seen)
    yield seen
    progress.set_reporter(before)


@pytest.fixture
def free_memory(monkeypatch):
    """``free_memory(n)``: from now on n bytes of memory are free, as far as afltool sees."""
    return lambda size: monkeypatch.setattr("afltool.memory.available", lambda: size)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB of its own; unmounted afterwards."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Take all space of a small disk but about ``leave`` bytes."""
    with (disk / "filler").open("wb", buffering=0) as file:
        file.write(bytes(2**20 - leave))
    return disk / "filler"


@pytest.fixture
def small_blocks(monkeypatch):
    """``small_blocks(rows, dim)``: rows of dim features are read so many at a time."""

    def of(rows: int, dim: int) -> None:
        monkeypatch.setattr("afltool.files.features.BLOCK_BYTES", 8 * dim * rows)

    return of


def installed(*args: Any, wait: bool = True, env: dict[str, str] | None = None, **options: Any):
    """Run the installed command in a process of its own; the finished process, or a running one."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    command = [str(COMMAND), *(str(a) for a in args)]
    environment = {**os.environ, **(env or {})}
    if not wait:
        return subprocess.Popen(command, env=environment, **given)
    return subprocess.run(command, env=environment, timeout=120, check=False, **given)


#: Not "email": importlib.metadata, which finds plug-ins, loads it.
HEAVY = (
    "torch", "torchvision", "timm", "numpy", "scipy", "pandas", "h5py", "matplotlib", "sklearn",
    "PIL", "pyarrow", "cryptography", "rich", "markdown_it", "pygments", "asyncio", "mlflow",
    "multiprocessing", "unittest", "nacl", "bcrypt", "fsspec", "scipy.linalg", "scipy.special",
    "numpy.f2py.f2py2e", "numpy.testing.overrides",
)  # fmt: skip
#: Commands in one process, which has loaded nothing before.
IN_TURN = """
import contextlib, io, json, sys
import typer
from afltool.cli import use_given_cores
use_given_cores()
from afltool.cli.app import app
command, heavy = typer.main.get_command(app), {*json.loads(sys.argv[1])}
for words in json.loads(sys.argv[2]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        with contextlib.suppress(SystemExit):
            command(words, prog_name="afltool")
    parts = [name for name in sys.modules if name.startswith("afltool.")]
    print(json.dumps([said.getvalue(), sorted(heavy & {*sys.modules}), parts]))
"""


def in_turn(lines, **options):
    """What each command prints, and of `HEAVY` and of afltool what is loaded after it."""
    words = [json.dumps(HEAVY), json.dumps([[str(word) for word in line] for line in lines])]
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, *words],
        capture_output=True,
        text=True,
        check=True,
        **options,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class Internet(urllib.request.BaseHandler):
    """Downloads that fail as on a machine without a network, but for ``files`` by their names."""

    handler_order = 0

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.files: dict[str, bytes] = {}

    def http_open(self, request: urllib.request.Request) -> Any:
        self.asked.append(request.full_url)
        name = request.full_url.rpartition("/")[2]
        if name not in self.files:
            raise urllib.error.URLError("Name or service not known")
        given = io.BytesIO(self.files[name])
        answer: Any = urllib.response.addinfourl(given, Message(), request.full_url, 200)
        answer.msg, answer.length = "OK", len(self.files[name])
        return answer

    https_open = http_open


@pytest.fixture
def internet():
    """All that a download can reach in this test; see `Internet`."""
    made = Internet()
    urllib.request.install_opener(urllib.request.build_opener(made))
    yield made
    urllib.request.install_opener(None)
