"""Plug-ins by entry points: the examples of docs/extending.md, laid out as pip does and a wheel."""

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
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from conftest import COMMAND

import afltool
from afltool import testing
from afltool.options.partition import SCHEMES
from afltool.plugins import install

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
GROUPS = "heads", "rivals", "datasets", "backbones", "schemes", "embeddings", "targets"
#: What a module may raise that no library would, beside what is wrong with it.
BROKEN = (
    "1 / 0", "def (", "import no_such", "OPTIONS = 3", "raise Exception('x')", "raise EOFError",
    "class Own(Exception): pass\nraise Own('two\\nlines')", "raise MemoryError",
    "import sys\nsys.exit(1)", "raise SystemExit('bye')",
)  # fmt: skip
LINES = """
import json, sys
from typer.testing import CliRunner
from afltool.cli.app import app
found = []
for words in json.load(sys.stdin):
    done = CliRunner().invoke(app, words, prog_name="afltool", catch_exceptions=False)
    found.append([done.exit_code, done.stdout, done.stderr])
json.dump(found, sys.stdout)
"""
CHECKS = """
import json, sys
from afltool import testing
found = []
for check, *given in json.load(sys.stdin):
    try:
        getattr(testing, check)(*given)
        found.append("")
    except AssertionError as error:
        found.append(str(error))
json.dump(found, sys.stdout)
"""


def test_what_is_missing_is_said_with_the_line_that_installs_it(tmp_path, monkeypatch):
    """Of the build that is here, from the folder that it came from, or by its name."""
    monkeypatch.syspath_prepend(tmp_path)
    made = tmp_path / "afltool_light-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: afltool-light\nVersion: 1\n")
    url = {"url": (tmp_path / "my source").as_uri(), "dir_info": {}}
    (made / "direct_url.json").write_text(json.dumps(url))
    assert install("plot") == f"pip install '{tmp_path}/my source[plot]'"
    (made / "direct_url.json").unlink()
    assert install("plot") == "pip install 'afltool-light[plot]'"


def examples(section, kind="python"):
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", text, re.S)


def example(section, kind="python"):
    return examples(section, kind)[0]


def points(text):
    """The entry points of a pyproject.toml, by group."""
    groups = tomllib.loads(text)["project"]["entry-points"].items()
    return [(group, f"{k} = {v}") for group, every in groups for k, v in every.items()]


class Site:
    """A folder of packages as pip lays them out."""

    def __init__(self, at):
        self.at = at
        at.mkdir(parents=True, exist_ok=True)

    def add(self, name, modules, points, version="1.0"):
        info = self.at / f"{name}-{version}.dist-info"
        info.mkdir()
        for module, code in modules.items():
            (self.at / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"[{group}]\n{line}\n" for group, line in points)
        (info / "entry_points.txt").write_text(lines)
        return self

    def env(self):
        path = os.pathsep.join([str(self.at), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}

    def lines(self, *lines):
        """(code, stdout, stderr) of several commands in one process."""
        found = self.script(LINES, [[str(word) for word in line] for line in lines])
        return [SimpleNamespace(code=a, out=b, err=c) for a, b, c in found]

    def checks(self, *calls):
        """What each of `afltool.testing` finds: a law that does not hold, or nothing."""
        return self.script(CHECKS, calls)

    def script(self, code, given):
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.env(), capture_output=True, text=True,
            check=False, input=json.dumps(given),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def one(self, *words, code=0):
        """One command in a process of its own."""
        line = [COMMAND, *map(str, words)]
        done = subprocess.run(line, env=self.env(), capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done

    def info(self, *files):
        return [json.loads(one.out) for one in self.lines(*(["info", f, "--json"] for f in files))]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The head and the rival of the page, the stage, and the commands of another package."""
    made = Site(tmp_path_factory.mktemp("toys") / "site")
    heads = {"nearest_mean": example("A head"), "trimmed_mean": example("A baseline")}
    made.add("toy-heads", heads, points(example("A plug-in", "toml")))
    return made


@pytest.fixture
def commands(site):
    count, size, more = examples("A command")
    named = [one for text in examples("A command", "toml") for one in points(text)]
    return site.add("toy", {"toy_rows": count, "toy_bytes": size, "toy_parts": more}, named)


def head_line(road, out, *more):
    given = ["--train-features", road.train, "--test-features", road.test, "--clients", 5]
    return ["run", *given, "--alpha", 1, "--head", "nearest-mean", *more, "-o", out]


# ------------------------------------------------------------ heads and rivals


def test_a_head_of_a_plug_in_takes_the_whole_road(toy, road, tmp_path):
    at, head0 = tmp_path, tmp_path / "head0.h5"
    stats = ["local-stats", road.train, "--head", head0]
    done = toy.lines(
        ["head", "nearest-mean", "-h"],
        ["head", "nearest-mean", "--shrink", 0.25, "-o", head0],
        [*stats, "--partition", road.clients, "-o", at / "stats"],
        ["aggregate", at / "stats", "-o", at / "total.h5"],
        [*stats, "--client", "all", "--sum", "-o", at / "whole.h5"],
        ["solve", at / "total.h5", "-o", at / "head.h5"],
        ["verify", at / "head.h5", at / "total.h5"],
        ["evaluate", at / "head.h5", road.test, "--json"],
        ["predict", at / "head.h5", road.test, "-o", at / "p.csv"],
    )
    assert [one.code for one in done] == [0] * 9, done
    assert "--shrink" in done[0].out
    made = toy.info(*(at / f"{name}.h5" for name in ("head0", "total", "whole", "head")))
    assert made[0]["options"] == {"prior": False, "shrink": 0.25}
    assert made[1]["digest"] == made[2]["digest"]
    assert made[3]["name"] == "nearest-mean"
    found = json.loads(done[7].out)
    assert found["top1"] > 0.5
    assert found["n"] == 200
    assert len((at / "p.csv").read_text().splitlines()) == 201


def test_a_run_takes_it_and_its_version_is_in_recipes(toy, road, tmp_path):
    out, other = tmp_path / "RUN", tmp_path / "S"
    done = toy.lines(
        head_line(road, out, "--shrink", 0.1),
        head_line(road, out, "--shrink", 0.2),
        head_line(road, out, "--prior", "--shrink", 0.1),
        ["slurm", *head_line(road, other)[1:]],
    )
    assert [one.code for one in done] == [0, 2, 2, 0]
    assert "shrink 0.1 → 0.2" in done[1].err
    assert "prior False → True" in done[2].err
    for facts in toy.info(*(out / f"{name}.h5" for name in ("03-head0", "04-total", "05-head"))):
        assert facts["recipe"]["inputs"]["afltool.heads"] == "toy-heads 1.0"
        assert facts["provenance"]["plugins"] == {"toy-heads": "1.0"}
    assert json.loads((out / "summary.json").read_text())["versions"]["plugins"]
    assert 'head = "nearest-mean"' in (other / "run.toml").read_text()
    assert "plugins" not in afltool.info(road.head)["provenance"]


def test_its_options_are_checked_as_those_of_any_head(toy, tmp_path):
    tried = [
        ("prior=3", "--prior"), ("shrink=x", "--shrink"), ("shrink=2", "--shrink is 0 to 1"),
        ("ridge=1", "--ridge"),
    ]  # fmt: skip
    out = ["-o", tmp_path / "h.h5"]
    done = toy.lines(*(["head", "nearest-mean", f"--{given}", *out] for given, _ in tried))
    for (given, said), one in zip(tried, done, strict=True):
        assert one.code == 2, given
        assert said in one.err
    assert not (tmp_path / "h.h5").exists()


def test_a_rival_of_a_plug_in_takes_the_whole_road(toy, road, tmp_path):
    """Without trimming it is FedAvg with equal weights; a study takes it, too."""
    study = tmp_path / "s.toml"
    study.write_text(
        f"train-features = '{road.train}'\ntest-features = '{road.test}'\nclients = 4\n"
        "baseline = 'trimmed-mean'\nrounds = 1\ntrim = [0.0, 0.25]\n"
    )
    given = [road.train, "--partition", road.clients, "--test", road.test, "--threads", 1]
    given += ["--rounds", 3]
    done = toy.lines(
        ["baseline", "trimmed-mean", *given, "--trim", 0.0, "-o", tmp_path / "R"],
        ["baseline", "fedavg", *given, "--average", "uniform", "-o", tmp_path / "F"],
        ["baseline", "trimmed-mean", *given, "--trim", 0.5, "-o", tmp_path / "no"],
        ["study", study, "-o", tmp_path / "S"],
        ["table", tmp_path / "S", "--columns", "trim"],
        ["evaluate", tmp_path / "R" / "head.h5", road.test, "--json"],
        ["evaluate", tmp_path / "F" / "head.h5", road.test, "--json"],
    )
    assert [one.code for one in done] == [0, 0, 2, 0, 0, 0, 0], [one.err for one in done]
    assert "--trim is at least 0, below 0.5" in done[2].err
    assert "trim = 0.25" in done[4].out
    ours = json.loads((tmp_path / "R" / "summary.json").read_text())
    assert ours["settings"]["trim"] == 0.0
    a, b = (json.loads(one.out) for one in done[5:])
    assert a["top1"] == pytest.approx(b["top1"], abs=0.01)
    assert a["n"] == b["n"] == 200
    with h5py.File(tmp_path / "R/head.h5") as x, h5py.File(tmp_path / "F/head.h5") as y:
        assert x["arrays"].keys() == y["arrays"].keys()
        for name in y["arrays"]:
            assert np.allclose(x["arrays"][name], y["arrays"][name], rtol=1e-5, atol=1e-6), name


def test_trimming_leaves_the_farthest_clients_out(toy, monkeypatch):
    import torch

    monkeypatch.syspath_prepend(toy.at)
    from trimmed_mean import TrimmedMean

    theta = torch.tensor([[1.0, -900.0], [2.0, 4.0], [3.0, 5.0], [4.0, 6.0], [900.0, 7.0]])
    method = SimpleNamespace(settings=SimpleNamespace(trim=0.2))
    assert TrimmedMean.merge(method, 1, range(5), None, theta).tolist() == [3.0, 5.0]


def test_the_examples_of_the_page_have_few_lines():
    assert all(len(example(one).splitlines()) <= 60 for one in ("A head", "A baseline"))


def test_a_scheme_of_a_plug_in_assigns_rows(site, road, tmp_path):
    site.add("blocks", {"toy_blocks": example("A scheme")}, points(example("A scheme", "toml")))
    out = tmp_path / "clients.h5"
    words = ["partition", road.train, "--scheme", "blocks"]
    done = site.lines(
        [*words, "--clients", 3, "-o", out],
        [*words, "-o", tmp_path / "no.h5"],
        [*words, "--clients", 3, "--alpha", 1, "-o", tmp_path / "no.h5"],
        ["partition", "-h"],
    )
    assert [one.code for one in done] == [0, 2, 2, 0]
    assert afltool.info(out)["clients"] == 3
    assert afltool.info(out)["recipe"]["inputs"]["afltool.schemes"] == "blocks 1.0"
    assert "--clients" in done[1].err
    assert "does not take --alpha" in done[2].err
    assert "blocks" in done[3].out
    assert site.checks(["check_scheme", "blocks"]) == [""]


# ------------------------------------------------------------ images, networks, files


@pytest.fixture
def data(site, tmp_path):
    """The page's data set, network and formats, pictures as it reads them, and embeddings."""
    sections = "A data set", "A backbone, embeddings, a format of export"
    pixels, others = map(example, sections)
    named = [one for section in sections for one in points(example(section, "toml"))]
    rng, y = np.random.default_rng(0), np.arange(40) // 2 % 2
    x = (rng.integers(0, 90, (40, 9, 9, 3)) + 160 * y[:, None, None, None]).astype(np.uint8)
    split = np.where(np.arange(40) < 30, "train", "test")
    np.savez(tmp_path / "toy.npz", x=x, label=np.array(["dark", "light"])[y], split=split, odd=y)
    made = {"x": rng.normal(size=(6, 3)).tolist(), "y": [0, 1, 0, 1, 0, 1]}
    (tmp_path / "x.json").write_text(json.dumps(made))
    return site.add("toy-data", {"toy_pixels": pixels, "toy_data": others}, named)


@pytest.mark.slow
def test_a_data_set_and_a_network_of_a_plug_in_are_extracted(data, tmp_path):
    how = ["extract", "--backbone", "tiny", "--weights", "random", "--image-size", 9]
    how += ["--data", f"pixels:{tmp_path / 'toy.npz'}", "--preprocess", "paper"]
    files = {name: tmp_path / f"{name}.h5" for name in ("train", "test", "odd", "no")}
    out = tmp_path / "RUN"
    done = data.lines(
        [*how, "--split", "train", "-o", files["train"]],
        [*how, "--split", "test", "-o", files["test"]],
        [*how, "--split", "train", "--label-column", "odd", "-o", files["odd"]],
        [*how, "--path-column", "x", "-o", files["no"]],
        ["run", "--train-features", files["train"], "--test-features", files["test"],
         "--clients", 2, "--scheme", "iid", "--ridge", 0.1, "-o", out],
        ["export", out / "head-final.h5", "-o", tmp_path / "model.npz"],
    )  # fmt: skip
    assert [one.code for one in done] == [0, 0, 0, 2, 0, 0], [one.err for one in done]
    facts = afltool.info(files["train"])
    assert (facts["space"]["dim"], facts["space"]["backbone"]) == (8, "tiny")
    assert facts["classes"] == ["dark", "light"]
    made_by = {"afltool.datasets": "toy-data 1.0", "afltool.backbones": "toy-data 1.0"}
    assert made_by.items() <= facts["recipe"]["inputs"].items()
    assert afltool.info(files["odd"])["classes"] == ["0", "1"]
    assert "--path-column is for table:FILE, parquet:PATTERN" in done[3].err
    assert json.loads((out / "summary.json").read_text())["top1"] == 1.0
    assert np.load(tmp_path / "model.npz")["head.W"].shape == (8, 2)


def test_embeddings_of_a_plug_in_are_imported(data, tmp_path):
    data.one("import", tmp_path / "x.json", "-o", tmp_path / "x.h5")
    found = afltool.info(tmp_path / "x.h5")
    assert (found["rows"], len(found["classes"])) == (6, 2)


# ------------------------------------------------------------ whether a plug-in holds


def changed(site, module, right, wrong):
    """Another line in a module of a plug-in."""
    place = site.at / f"{module}.py"
    code = place.read_text()
    assert code.count(right) == 1
    place.write_text(code.replace(right, wrong))


def test_the_checks_of_a_data_set_notice_what_is_wrong(data, tmp_path):
    spec = f"pixels:{tmp_path / 'toy.npz'}"
    assert data.checks(["check_dataset", spec], ["check_dataset", spec, "test"]) == ["", ""]
    (no_file,) = data.checks(["check_dataset", "pixels"])
    assert "unknown data set 'pixels'" in no_file
    changed(data, "toy_pixels", "digest(x.tobytes(), *names)", "str(np.random.rand())")
    assert "the same rows have the same fingerprint" in data.checks(["check_dataset", spec])[0]
    changed(data, "toy_pixels", 'found["x"][rows]', 'found["x"][rows].astype("f4")')
    assert "without an error" in data.checks(["check_dataset", spec])[0]


@pytest.mark.parametrize(
    ("right", "wrong", "words", "code", "said"),
    [
        pytest.param(
            "nn.Linear(8, 2)", "nn.Identity()", "extract --backbone tiny --weights random "
            "--image-size 9 --data pixels:toy.npz --split train -o no.h5", 2, "tiny",
            marks=pytest.mark.slow,  # it loads PyTorch
        ),
        ("iter([x])", "iter([x[1:]])", "import x.json -o no.h5", 3, "x.json"),
        pytest.param(
            "torch.from_numpy(found[name])", "1 + torch.from_numpy(found[name])",
            "export head.h5 -o no.npz", 5, "no.npz", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_what_a_plug_in_reads_or_writes_wrongly_is_refused(
    data, road, tmp_path, monkeypatch, right, wrong, words, code, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "head.h5").write_bytes(road.head.read_bytes())
    changed(data, "toy_data", right, wrong)
    done = data.one(*words.split(), code=code)
    assert said in done.stderr
    assert not [*tmp_path.glob("no.*")]


def wrong_ones(code, changes):
    """The code of a plug-in for each law that does not hold then: its changes, (right, wrong)."""
    for law, pairs in changes.items():
        made = code
        for right, wrong in pairs:
            assert made.count(right) == 1, (law, right)
            made = made.replace(right, wrong)
        yield law, made


def test_the_checks_of_a_head_notice_what_is_wrong(site):
    add, learns = "add_up({", "replace(self, means=means, "
    offsets, scores = "offsets: F64 | None = state()", "+ self.offsets\n\n\ndef graph"
    is_left, phase = (offsets, "offsets: F64 | None = None"), 'Phase("means") if self.means is None'
    again = "replace(self, means=means if self.means is None else self.means + 1, "
    changes = {
        "its options have names of their own": [("    shrink:", "    clients:")],
        "its name in files is that of the plug-in": [('name = "nearest-mean"', 'name = "linear"')],
        "sums of clients add up": [(add, "add_up({'n': np.ones(1) * (len(y) > 0), ")],
        "the order of the rows does not matter": [("cross(X, y, c", "cross(X[:1], y[:1], c")],
        "the same sums give the same digest": [("sums = total", "sums = np.random.rand() + total")],
        "the sums of no rows add nothing": [(add, "add_up({'n': np.ones(1) * (not len(y)), ")],
        "the digest says that the head has learned": [
            (learns, "replace(self, means=self.means, "), is_left,
        ],
        "what it learns changes no head before it": [
            ("return replace(", "object.__setattr__(self, 'means', means); return replace("),
        ],
        "it is solved after at most 3 rounds": [(f"{phase} else None", 'Phase("means")'),
                                                (learns, again)],
        "a file gives the same head": [is_left],
        "scores are finite numbers": [(scores, scores.replace("\n", " + np.inf\n", 1))],
        "without an error, which was ZeroDivisionError": [("o, counts =", "1 / 0 or")],
    }  # fmt: skip
    for i, (_, code) in enumerate(wrong_ones(example("A head"), changes)):
        code = code.replace("nearest-mean", f"wrong{i}")
        site.add(f"wrong{i}", {f"w{i}": code}, [("afltool.heads", f"wrong{i} = w{i}")])
    laws = site.checks(*(["check_head", f"wrong{i}", {}, 3] for i in range(len(changes))))
    for law, found in zip(changes, laws, strict=True):
        assert law in found
    assert "it is installed: 'nothing' is not in" in site.checks(["check_head", "nothing"])[0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {"intercept": True}), ("random-features", {"width": 8}),
        ("softmax", {"rounds": 3}), ("discriminant", {"rule": "qda", "shrinkage": 0.1}),
        ("safle", {"buckets": 4}), ("deepafl", {"layers": 2, "width": 8}),
    ],
)  # fmt: skip
def test_the_heads_of_afltool_pass_the_checks(name, options):
    testing.check_head(name, options)


def test_the_schemes_of_afltool_pass_the_checks():
    for name in SCHEMES.keys() - {"by-attribute", "file"}:  # their clients are in a table
        testing.check_scheme(name)


def test_the_checks_of_schemes_and_baselines_notice_what_is_wrong(site):
    of = {
        "scheme": ("A scheme", "afltool.schemes", "", {
            "15 rows without one": [("), names", "), names[:3]")],
            "assigned alike": [("np.arange(len", "np.random.permutation(len")],
            "which was NameError": [("import numpy as np", "")],
        }),
        "baseline": ("A baseline", "afltool.rivals", ":TrimmedMean", {
            "not depend on --threads": [
                ("from pydantic import", "import torch\nfrom pydantic import"),
                ("kept.mean(dim=0)", "torch.rand(kept.shape[1:])"),
            ],
            "its name in files": [('name = "trimmed-mean"', 'name = "fedavg"')],
        }),
    }  # fmt: skip
    for kind, (section, group, place, changes) in of.items():
        for i, (_, code) in enumerate(wrong_ones(example(section), changes)):
            name, code = f"{kind}{i}", code.replace("trimmed-mean", f"{kind}{i}")
            site.add(name, {f"w{name}": code}, [(group, f"{name} = w{name}{place}")])
        found = site.checks(*([f"check_{kind}", f"{kind}{i}"] for i in range(len(changes))))
        assert all(law in one for law, one in zip(changes, found, strict=True)), found


# ------------------------------------------------------------ what is loaded, and what cannot be


def test_a_plug_in_that_cannot_be_loaded_is_named_and_stops_nothing(site, road, tmp_path):
    modules = {f"bad{i}": code for i, code in enumerate(BROKEN)}
    of_bad = [(f"afltool.{g}", f"{n}-{g} = {n}") for g in GROUPS for n in modules]
    site.add("bad", modules, [*of_bad, ("afltool.heads", "linear = bad0")])
    done = site.lines(
        ["head", "-h"],
        *([*words, "-h"] for words in ([], ["run"], ["baseline"], ["head", "linear"])),
        ["run", "--help-all"],
    )
    assert [one.code for one in done] == [0] * 6
    said = done[0].err
    assert "the part linear (bad0, afltool.heads) cannot be loaded and is left out" in said
    assert said.count("afltool.heads") == len(BROKEN) + 1
    assert "left out: MemoryError" in said
    assert "left out: SystemExit: bye" in said
    assert "Traceback" not in said + site.one("run", "-h").stderr
    assert [one.out[:14] for one in done[1:6]] == ["Usage: afltool"] * 5
    assert "linear" in done[5].out
    laws = site.checks(*(["check_head", f"{name}-heads"] for name in modules))
    assert all("it works without an error" in law for law in laws), laws
    assert site.one("info", road.head).stderr == "", "nothing is loaded for it"


LIGHT = """
import sys
from afltool.heads.options import HeadOptions
class OPTIONS(HeadOptions): "None."
print("loaded", __name__, *({"numpy", "torch"} & sys.modules.keys()), file=sys.stderr)
"""


def test_help_with_ten_plug_ins_loads_little_more(site):
    """`-h` is at most 0.35 s of processor time: modules are counted, since time is not ours."""
    every = enumerate((*GROUPS, *GROUPS[:3]))
    named = [(f"afltool.{group}", f"p{i} = plug{i}") for i, group in every]
    site.add("ten", {f"plug{i}": LIGHT for i in range(10)}, named)
    heads = ["loaded plug0", "loaded plug7"]  # whose names it shows
    assert site.one("-h").stderr == ""
    assert site.one("run", "-h").stderr.splitlines()[:1] == ["loaded plug4"]  # those of schemes
    assert site.one("head", "-h").stderr.splitlines() == heads
    assert site.one("info", "-h").stderr == ""


# ------------------------------------------------------------ commands and stages


def test_a_package_adds_a_command_and_answers_for_its_folders(commands, tmp_path):
    (tmp_path / "three").write_text("abc")
    (tmp_path / "toy.txt").write_text("all is done")
    done = commands.lines(
        ["-h"], ["toy-bytes", "-h"], ["toy-bytes", tmp_path / "three"],
        ["status", tmp_path], ["status", tmp_path, "--json"], ["toy-bites"],
    )  # fmt: skip
    assert re.search("^  toy-bytes +Print how many bytes a file has[.]$", done[0].out, re.M)
    assert done[1].out.startswith("Usage: afltool toy-bytes")
    assert [one.out for one in done[2:4]] == ["3\n", "all is done\n"]
    assert json.loads(done[4].out) == {"toy": "all is done"}
    assert done[5].code == 2
    assert "No such command 'toy-bites'" in done[5].err


def test_it_joins_a_group_and_takes_no_name_of_another_part(commands):
    (commands.at / "toy_parts.py").write_text(
        "import typer\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def dots(number: int): print('.' * number)\n"
        "def commands():\n"
        "    from afltool.cli.app import of_app\n"
        "    from afltool.cli.commands import Command\n"
        "    dots = Command('', 'Files', make=lambda words: of_app('dots', app))\n"
        "    return dict.fromkeys(('solve', 'plot', 'plot dots', 'plot confusion'), dots)\n"
    )
    ours = [["solve"], ["study"], ["plot", "confusion"], ["plot", "study"], ["plot"]]
    done = commands.lines(["plot", "dots", 3], ["plot", "-h"], *ours)
    assert done[0].out == "...\n"
    assert "dots" in done[1].out
    for words, one in zip(ours[:-1], done[2:], strict=False):
        assert one.code == 2, words
        assert re.search("Missing argument|name a study|is needed", one.err), words
    assert "rounds" in done[-1].out + done[-1].err


@pytest.mark.parametrize("code", [
    "import no_such_module", "def commands(: ", "commands = 3", "raise Exception('x')",
    "def commands(): raise SystemExit(1)", "def commands(): return {'x': 3}", None,
])  # fmt: skip
def test_a_part_that_cannot_be_loaded_is_named_and_breaks_nothing(commands, code):
    module = commands.at / "toy_parts.py"
    module.unlink() if code is None else module.write_text(code)
    helped, unknown = commands.lines(["-h"], ["toy-bites"])
    assert helped.code == 0
    assert "baseline" in helped.out
    assert "the part toy" in helped.err
    assert "left out" in helped.err
    assert "Traceback" not in helped.err
    assert unknown.code == 2
    assert "No such command 'toy-bites'" in unknown.err
    if code is None:
        alone = commands.one("toy-bites", code=2).stderr
        assert "the part toy" in alone
        assert "No such command 'toy-bites'" in alone
        assert commands.one("--version").stderr == ""
        assert commands.one("study", "--list").returncode == 0


def test_ctrl_c_while_a_part_is_loaded_ends_the_command(commands):
    (commands.at / "toy_bytes.py").write_text("raise KeyboardInterrupt")
    done = commands.one("toy-bytes", code=130)
    assert "Traceback" not in done.stderr


def loaded(*lines):
    """The modules of other parts that are loaded after each command in a process."""
    code = f"""
import json, sys
from typer.testing import CliRunner
from afltool.cli.app import app
parts = ("afltool.papers", "afltool.rivals", "afltool.federation")
for words in {[[str(word) for word in words] for words in lines]!r}:
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0, words
    print(json.dumps([m for m in sys.modules if m.startswith(parts)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_command_of_the_main_part_loads_no_other_part(road, tmp_path):
    solve = ["solve", road.total, "-o", tmp_path / "head.h5"]
    *none, study = loaded(solve, ["solve", "-h"], ["plot", "rounds", "-h"], ["study", "-h"])
    assert none == [[], [], []]
    assert "afltool.papers.commands" in study
    assert not [name for name in study if "federation" in name], "the part of this name is first"


def test_a_class_and_a_function_are_a_command(commands, road, tmp_path):
    alone, kept = tmp_path / "rows.json", tmp_path / "kept.json"
    counts = np.unique(np.load(road.embeddings)["y"], return_counts=True)[1].tolist()
    few = min(counts) + 1
    run = ["run", "--train-features", road.train, "--test-features", road.test]
    done = commands.lines(
        ["count-rows", "-h"],
        ["count-rows", road.train, "-o", alone],
        ["count-rows", road.train, "--at-least", few, "-o", kept],
        ["count-rows", road.train, "--at-least", -1, "-o", tmp_path / "no.json"],
        ["count-rows", road.train, "--at-least", few, "-o", alone],
        ["count-rows", road.train, "-o", road.train, "--overwrite"],
        [*run, "--count-rows-at-least", few, "-o", tmp_path / "run"],
    )
    assert [one.code for one in done] == [0, 0, 0, 2, 2, 2, 2]
    assert "(FEATURES)" in done[5].err
    assert "Count the rows of each class." in done[0].out
    assert "--at-least" in done[0].out
    assert done[1].out == f"{alone}\n"
    assert sorted(json.loads(alone.read_text()).values()) == sorted(counts)
    assert sorted(json.loads(kept.read_text()).values()) == sorted(n for n in counts if n >= few)
    assert "--at-least is at least 0; found -1" in done[3].err


# ------------------------------------------------------------ wheels


@pytest.mark.slow
def test_a_wheel_of_plug_ins_is_used_in_another_environment(tmp_path, road):
    """An environment of its own with the head and the rival of the page."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    place = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")})
    Path(place, "shared.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    source = tmp_path / "toy"
    source.mkdir()
    (source / "pyproject.toml").write_text(example("A plug-in", "toml"))
    (source / "nearest_mean.py").write_text(example("A head"))
    (source / "trimmed_mean.py").write_text(example("A baseline"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(source)]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    (wheel,) = map(str, tmp_path.glob("*.whl"))
    install = ["--python", str(python), "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run([*pip, *install], check=True, capture_output=True)

    def run(*words, module="afltool"):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        line = [python, "-m", module, *map(str, words)]
        done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "test_toy.py").write_text(example("A test"))
    run("-q", "-p", "no:cacheprovider", tmp_path / "test_toy.py", module="pytest")
    study = tmp_path / "s.toml"
    study.write_text(
        f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
        'seed = [0, 1]\n[[method]]\nhead = "nearest-mean"\nshrink = [0, 0.5]\n'
        '[[method]]\nbaseline = "trimmed-mean"\nrounds = 1\nthreads = 1\n'
    )
    run("study", study, "-o", tmp_path / "S", "--jobs", 2)
    table = run("table", tmp_path / "S")
    assert "nearest-mean" in table
    assert "trimmed-mean" in table
    head = next((tmp_path / "S").glob("cells/nearest-mean-*/05-head.h5"))
    run("export", head, "-o", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size
