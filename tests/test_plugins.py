"""Plug-ins by entry points: as pip lays them out, and as wheels in an environment of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest
from conftest import COMMAND

import afltool
from afltool.files.hdf5 import read_header

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
GROUPS = "heads", "rivals", "datasets", "backbones", "schemes", "embeddings", "targets"
#: What a module may raise that no library would.
BROKEN = (
    "raise Exception('x')",
    "class Own(Exception): pass\nraise Own('two\\nlines')",
    "raise MemoryError",
    "raise EOFError",
    "import sys\nsys.exit(1)",
    "raise SystemExit('bye')",
)
SCHEME = """
import numpy as np
NEEDS, MAY = {"clients"}, set()
def deal(labels, options):
    names = [str(k) for k in range(options.clients)]
    return np.arange(len(labels)) * options.clients // len(labels), names
"""


def example(section, kind="python"):
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.search(rf"```{kind}\n(.*?)```", text, re.S)[1]


@pytest.fixture
def packages(tmp_path):
    """``packages(name, modules, points)`` lays a package out as pip does; it returns a command."""
    site = tmp_path / "site"

    def add(name, modules, points, version="1.0"):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        for module, code in modules.items():
            (site / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"[{group}]\n{line}\n" for group, line in points]
        (info / "entry_points.txt").write_text("".join(lines))
        return run

    def run(*words, code=0):
        path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [COMMAND, *map(str, words)], env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    return add


@pytest.fixture
def toy(packages):
    modules = {"nearest_mean": example("A head"), "trimmed_mean": example("A rival")}
    project = tomllib.loads(example("A plug-in", "toml"))["project"]
    groups = project["entry-points"].items()
    points = [(group, f"{k} = {v}") for group, every in groups for k, v in every.items()]
    return packages("toy-heads", modules, points)


def test_the_heads_of_the_page_have_few_lines():
    for section in ("A head", "A rival"):
        assert len(example(section).splitlines()) <= 60


def test_a_head_of_a_plug_in_has_options_and_its_version_is_in_recipes(toy, road, tmp_path):
    assert "--shrink" in toy("head", "nearest-mean", "-h").stdout
    given = ["--train-features", road.train, "--test-features", road.test, "--clients", 3]
    out = tmp_path / "RUN"
    toy("run", *given, "--alpha", 1, "--head", "nearest-mean", "--shrink", 0.1, "-o", out)
    for name in ("03-head0.h5", "04-total.h5", "05-head.h5"):
        header = read_header(out / name)
        assert header["recipe"]["inputs"]["afltool.heads"] == "toy-heads 1.0"
        assert header["provenance"]["plugins"] == {"toy-heads": "1.0"}
    assert json.loads((out / "summary.json").read_text())["versions"]["plugins"]
    assert "plugins" not in read_header(road.head)["provenance"]


def test_a_plug_in_that_cannot_be_loaded_is_named_and_stops_nothing(packages, road, tmp_path):
    codes = ["1 / 0", "def (", "import no_such", "OPTIONS = 3", *BROKEN]
    modules = {f"bad{i}": code for i, code in enumerate(codes)}
    points = [(f"afltool.{g}", f"{n}-{g} = {n}") for g in GROUPS for n in modules]
    run = packages("bad", modules, [*points, ("afltool.heads", "linear = bad0")])
    done = run("head", "linear", "-o", tmp_path / "h.h5")
    assert "the part linear (bad0, afltool.heads) cannot be loaded and is left out" in done.stderr
    assert done.stderr.count("afltool.heads") == len(codes) + 1
    assert "Traceback" not in done.stderr
    assert "left out: MemoryError" in done.stderr
    assert "left out: SystemExit: bye" in done.stderr
    for words in (["-h"], ["run", "-h"], ["baseline", "-h"], ["head", "linear", "-h"]):
        assert run(*words).stdout.startswith("Usage: afltool"), words
    assert "linear" in run("run", "--help-all").stdout
    assert run("info", road.head).stderr == "", "no door is opened for it"
    checked = run("check-plugin", "bad0-heads", code=5)
    assert "FAILS  without an error: ZeroDivisionError" in checked.stdout
    unknown = run("check-plugin", "nothing", code=2).stderr
    assert "no installed package has a plug-in 'nothing'" in unknown


@pytest.mark.slow
def test_the_checks_of_a_plug_in_notice_what_is_wrong(packages):
    good = example("A head")
    wrong = {
        "its options have names of their own": good.replace("shrink", "clients"),
        "sums of clients add up": good.replace("add_up({", "add_up({'n': np.ones(1), "),
        "it is solved after at most 200 rounds": good.replace(
            'Phase("means") if self.means is None else None', 'Phase("means")'
        ),
        "a file gives the same head": good.replace(
            "offsets: F64 | None = state()", "offsets: F64 | None = None"
        ),
    }
    for number, (law, code) in enumerate(wrong.items()):
        assert code != good, law
        code = code.replace("nearest-mean", f"wrong{number}")
        run = packages(
            f"wrong{number}",
            {f"w{number}": code},
            [("afltool.heads", f"wrong{number} = w{number}")],
        )
        checked = run("check-plugin", f"wrong{number}", code=5)
        failed = [line for line in checked.stdout.splitlines() if line.startswith("FAILS")]
        assert any(law in line for line in failed), checked.stdout


def test_a_scheme_of_a_plug_in_deals_rows(packages, road, tmp_path):
    run = packages("blocks", {"blocks": SCHEME}, [("afltool.schemes", "blocks = blocks")])
    out = tmp_path / "clients.h5"
    run("partition", road.train, "--scheme", "blocks", "--clients", 3, "-o", out)
    assert afltool.info(out)["clients"] == 3
    assert read_header(out)["recipe"]["inputs"]["afltool.schemes"] == "blocks 1.0"
    assert "FAILS" not in run("check-plugin", "blocks").stdout
    assert "blocks" in run("partition", "-h").stdout


# ------------------------------------------------------------ images, networks, files


@pytest.fixture
def data(packages, tmp_path):
    """The page's module of four plug-ins, pictures as it reads them, and embeddings."""
    text = PAGE.split("all in one module `toy_data`:")[1]
    code, toml = (re.search(rf"```{kind}\n(.*?)```", text, re.S)[1] for kind in ("python", "toml"))
    groups = tomllib.loads(toml)["project"]["entry-points"].items()
    points = [(group, f"{k} = {v}") for group, every in groups for k, v in every.items()]
    rng, y = np.random.default_rng(0), np.arange(40) // 2 % 2
    x = (rng.integers(0, 90, (40, 9, 9, 3)) + 160 * y[:, None, None, None]).astype(np.uint8)
    split = np.where(np.arange(40) < 30, "train", "test")
    np.savez(tmp_path / "toy.npz", x=x, label=np.array(["dark", "light"])[y], split=split, odd=y)
    made = {"x": rng.normal(size=(6, 3)).tolist(), "y": [0, 1, 0, 1, 0, 1]}
    (tmp_path / "x.json").write_text(json.dumps(made))
    return packages("toy-data", {"toy_data": code}, points)


@pytest.mark.slow
def test_a_data_set_and_a_network_of_a_plug_in_are_extracted(data, tmp_path):
    spec = f"pixels:{tmp_path / 'toy.npz'}"
    how = ["--backbone", "tiny", "--weights", "random", "--image-size", 9, "--data", spec]
    for split in ("train", "test"):
        data("extract", *how, "--split", split, "-o", tmp_path / f"{split}.h5")
    header = read_header(tmp_path / "train.h5")
    assert (header["space"]["dim"], header["space"]["backbone"]) == (8, "tiny")
    assert header["classes"] == ["dark", "light"]
    made_by = {"afltool.datasets": "toy-data 1.0", "afltool.backbones": "toy-data 1.0"}
    assert made_by.items() <= header["recipe"]["inputs"].items()
    odd = [*how, "--split", "train", "--label-column", "odd", "-o", tmp_path / "odd.h5"]
    data("extract", *odd)
    assert read_header(tmp_path / "odd.h5")["classes"] == ["0", "1"]
    wrong = data("extract", *how, "--path-column", "x", "-o", tmp_path / "no.h5", code=2)
    assert "--path-column is for table:FILE, parquet:PATTERN" in wrong.stderr
    out = tmp_path / "RUN"
    data("run", "--train-features", tmp_path / "train.h5", "--test-features", tmp_path / "test.h5",
         "--clients", 2, "--scheme", "iid", "--ridge", 0.1, "-o", out)  # fmt: skip
    assert json.loads((out / "summary.json").read_text())["top1"] == 1.0
    model = tmp_path / "model.npz"
    data("export", out / "head-final.h5", "-o", model)
    assert np.load(model)["W"].shape == (8, 2)


def test_embeddings_of_a_plug_in_are_imported(data, tmp_path):
    data("import", tmp_path / "x.json", "-o", tmp_path / "x.h5")
    found = afltool.info(tmp_path / "x.h5")
    assert (found["rows"], len(found["classes"])) == (6, 2)


CHECKED = {
    "pixels": ("toy.npz", "its training images are RGB pictures"),
    "tiny": (None, "it gives the 8 features of a picture that it says"),
    ".json": ("x.json", "its blocks have the rows that it says"),
    ".npz": (None, "a linear head's file gives the head's scores"),
}


@pytest.mark.slow
def test_what_reads_and_writes_is_tried_by_its_check(data, tmp_path):
    for name, (file, law) in CHECKED.items():
        given = [] if file is None else ["--file", tmp_path / file]
        assert f"ok     {law}" in data("check-plugin", name, *given).stdout
        if file is not None:
            assert "with --file" in data("check-plugin", name, code=2).stderr


@pytest.mark.parametrize(
    ("name", "right", "wrong", "law"),
    [
        ("pixels", 'found["x"][rows]', 'found["x"][rows].astype("f4")', "without an error"),
        pytest.param(
            "tiny",
            "nn.Linear(8, 2)",
            "nn.Identity()",
            "without an error: UsageError",
            marks=pytest.mark.slow,  # it loads PyTorch
        ),
        (".json", "iter([x])", "iter([x[1:]])", "its blocks have the rows that it says"),
        (".npz", "+ found", "+ 1 + found", "without an error: NumericalError"),
    ],
)
def test_the_checks_notice_what_is_read_or_written_wrongly(data, tmp_path, name, right, wrong, law):
    module = tmp_path / "site" / "toy_data.py"
    code = module.read_text()
    assert code.count(right) == 1
    module.write_text(code.replace(right, wrong))
    file, _ = CHECKED[name]
    given = [] if file is None else ["--file", tmp_path / file]
    assert f"FAILS  {law}" in data("check-plugin", name, *given, code=5).stdout


LIGHT = """
import sys
from afltool.heads.options import HeadOptions
class OPTIONS(HeadOptions): "None."
print("loaded", __name__, *({"numpy", "torch"} & sys.modules.keys()), file=sys.stderr)
"""


def test_help_with_ten_plug_ins_loads_little_more(packages):
    """`-h` is at most 0.35 s of processor time: modules are counted, since time is not ours."""
    points = [(f"afltool.{g}", f"p{i} = plug{i}") for i, g in enumerate((*GROUPS, *GROUPS[:3]))]
    run = packages("ten", {f"plug{i}": LIGHT for i in range(10)}, points)
    heads = ["loaded plug0", "loaded plug7"]  # `-h` and `run -h` show the names of heads
    assert run("-h").stderr.splitlines() == heads
    assert run("run", "-h").stderr.splitlines()[:2] == heads
    assert run("info", "-h").stderr == ""


# ------------------------------------------------------------ wheels


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """An environment of its own with two plug-ins, from their wheels; a command runs in it."""
    at = tmp_path_factory.mktemp("elsewhere")
    venv.create(at / "env", with_pip=False, symlinks=True)
    python = at / "env" / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(at / "env")})
    Path(site, "shared.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    project = example("A plug-in", "toml")
    for name, section in (("nearest_mean", "A head"), ("trimmed_mean", "A rival")):
        source = at / name
        source.mkdir()
        own = project.replace("toy-heads", name.replace("_", "-"))
        other = {"nearest_mean": "rivals", "trimmed_mean": "heads"}[name]
        own = re.sub(rf'\[project.entry-points."afltool.{other}"\]\n.*\n', "", own)
        own = re.sub(r"py-modules = .*", f'py-modules = ["{name}"]', own)
        (source / "pyproject.toml").write_text(own)
        (source / f"{name}.py").write_text(example(section))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        build = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(at), str(source)]
        subprocess.run([*pip, *build], check=True, capture_output=True)
        (wheel,) = at.glob(f"{name}-*.whl")
        install = ["--python", str(python), "install", "-q", "--no-index", "--no-deps", str(wheel)]
        subprocess.run([*pip, *install], check=True, capture_output=True)

    def run(*words):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        line = [python, "-m", "afltool", *map(str, words)]
        done = subprocess.run(line, env=env, cwd=at, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_wheels_of_plug_ins_are_used_in_another_environment(elsewhere, road, tmp_path):
    for name in ("nearest-mean", "trimmed-mean"):
        assert "FAILS" not in elsewhere("check-plugin", name)
    study = tmp_path / "s.toml"
    study.write_text(
        f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
        'seed = [0, 1]\n[[method]]\nhead = "nearest-mean"\nshrink = [0, 0.5]\n'
        '[[method]]\nbaseline = "trimmed-mean"\nrounds = 1\nthreads = 1\n'
    )
    elsewhere("study", study, "-o", tmp_path / "S", "--jobs", 2)
    table = elsewhere("table", tmp_path / "S")
    assert "nearest-mean" in table
    assert "trimmed-mean" in table
    (head,) = list((tmp_path / "S").glob("cells/nearest-mean-*/05-head.h5"))[:1]
    out = tmp_path / "model.onnx"
    elsewhere("export", head, "-o", out)
    assert out.stat().st_size
    given = ["--train-features", road.train, "--test-features", road.test, "--clients", 3]
    elsewhere("slurm", *given, "--head", "nearest-mean", "-o", tmp_path / "R")
    assert 'head = "nearest-mean"' in (tmp_path / "R" / "run.toml").read_text()
