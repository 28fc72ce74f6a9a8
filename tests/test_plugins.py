"""Plug-ins by entry points: the examples of docs/extending.md, laid out as pip does."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from conftest import COMMAND, built, command_line, in_turn

import afltool
from afltool import testing
from afltool.backbones.families import FAMILIES
from afltool.cli.app import PARTS
from afltool.embeddings import READERS
from afltool.exporting import FORMATS
from afltool.heads import HEADS
from afltool.lab.baselines import METHODS
from afltool.options.datasets import DATASETS
from afltool.options.partition import SCHEMES
from afltool.plugins import USED, entry_points, install

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
OTHERS = "A backbone, embeddings, a format of export"
GROUPS = "heads", "baselines", "datasets", "backbones", "schemes", "embeddings", "exporters"


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


def points(*sections):
    """The entry points of the pyproject.toml of sections, as (group, line)."""
    texts = [text for section in sections for text in examples(section, "toml")]
    tables = [tomllib.loads(text)["project"]["entry-points"].items() for text in texts]
    every = [one for table in tables for one in table]
    return [(group, f"{k} = {v}") for group, lines in every for k, v in lines.items()]


class Site:
    """A folder of packages as pip lays them out."""

    def __init__(self, at):
        self.at = at
        at.mkdir(parents=True)
        path = os.pathsep.join([str(at), os.environ.get("PYTHONPATH", "")])
        self.env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}

    def add(self, name, modules, points):
        info = self.at / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        for module, code in modules.items():
            (self.at / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("".join(f"[{g}]\n{line}\n" for g, line in points))
        return self

    @contextmanager
    def installed(self):
        """In this block the packages are installed in this process."""
        before, used = {*sys.modules}, {*USED}
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(self.at)
            forget()
            yield
        for name in {*sys.modules} - before:
            if str(self.at) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        USED.intersection_update(used)
        forget()

    def lines(self, *lines):
        """What several commands do with the packages."""
        with self.installed(), command_line() as run:
            return [self.line(run, line) for line in lines]

    @staticmethod
    def line(run, words):
        """As in a process of its own, where help comes before messages have a stream."""
        logger = logging.getLogger("afltool")
        logger.handlers, logger.propagate = [], False
        return run(*words)

    def checks(self, *calls):
        """What each check of `afltool.testing` finds: a law that does not hold, or nothing."""
        found = []
        with self.installed():
            for check, *given in calls:
                try:
                    getattr(testing, check)(*given)
                    found.append("")
                except (Exception, SystemExit) as error:
                    found.append(f"{type(error).__name__}: {error}")
        return found


def forget():
    """What is known of the packages that are installed."""
    entry_points.cache_clear()
    for one in (DATASETS, FAMILIES, FORMATS, HEADS, METHODS, PARTS, READERS, SCHEMES):
        vars(one).pop("added", None)
    built.clear()


def everything(at):
    """All that the page has, a package for each section, with a greedy one."""
    site = Site(at)
    for package, (section, *names) in {
        "toy-heads": ("A plug-in", "nearest_mean", "trimmed_mean"),
        "toy-scheme": ("A scheme", "toy_blocks"),
        "toy-command": ("A command", "toy_rows"),
        "toy-pixels": ("A data set", "toy_pixels"),
        "toy-data": (OTHERS, "toy_data"),
    }.items():
        whole = "A head", "A baseline"
        codes = [
            c for one in (whole if package == "toy-heads" else [section]) for c in examples(one)
        ]
        site.add(package, dict(zip(names, codes, strict=False)), points(section))
    taken = "from toy_rows import commands as own\ndef commands(): return dict.fromkeys(\n    "
    taken += "('solve', 'plot', 'plot confusion', 'plot rows'), own()['count-rows'])"
    return site.add("greedy", {"greedy": taken}, [("afltool.commands", "greedy = greedy")])


@pytest.fixture(scope="module")
def used(road, tmp_path_factory):
    """What commands do that all of the page is installed for: results by a name."""
    at = tmp_path_factory.mktemp("plugins")
    (at / "toy.txt").write_text("all is done")
    made = {"x": np.random.default_rng(0).normal(size=(6, 3)).tolist(), "y": [0, 1, 0, 1, 0, 1]}
    (at / "x.json").write_text(json.dumps(made))
    (at / "s.toml").write_text(
        f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
        '[[method]]\nhead = "nearest-mean"\nshrink = [0, 0.5]\n'
        '[[method]]\nbaseline = "trimmed-mean"\nrounds = 1\nthreads = 1\n'
    )
    stats = ["local-stats", road.train, "--head", at / "head0.h5"]
    run = ["run", "--train-features", road.train, "--test-features", road.test, "--clients", 5]
    run += ["--alpha", 1, "--head", "nearest-mean"]
    few = [road.train, "--partition", road.clients, "--test", road.test, "--threads", 1]
    few += ["--rounds", 3]
    blocks, count = ["partition", road.train, "--scheme", "blocks"], ["count-rows", road.train]
    lines = {
        "help": ["-h"],
        "head -h": ["head", "nearest-mean", "-h"],
        "head": ["head", "nearest-mean", "--shrink", 0.25, "-o", at / "head0.h5"],
        "stats": [*stats, "--partition", road.clients, "-o", at / "stats"],
        "whole": [*stats, "--client", "all", "--sum", "-o", at / "whole.h5"],
        "total": ["aggregate", at / "stats", "-o", at / "total.h5"],
        "solve": ["solve", at / "total.h5", "-o", at / "head.h5"],
        "verify": ["verify", at / "head.h5", at / "total.h5"],
        "evaluate": ["evaluate", at / "head.h5", road.test, "--json"],
        **{f"info {name}": ["info", at / f"{name}.h5", "--json"]
           for name in ("total", "whole", "head")},
        "predict": ["predict", at / "head.h5", road.test, "-o", at / "p.csv"],
        **{f"no {given}": ["head", "nearest-mean", f"--{given}", "-o", at / "no.h5"]
           for given in ("prior=3", "shrink=x", "shrink=2", "ridge=1")},
        "run": [*run, "--shrink", 0.1, "-o", at / "RUN"],
        "run, other": [*run, "--prior", "--shrink", 0.1, "-o", at / "RUN"],
        **{f"info {name}": ["info", at / "RUN" / f"{name}.h5", "--json"]
           for name in ("03-head0", "04-total", "05-head")},
        "slurm": ["slurm", *run[1:], "-o", at / "S"],
        "rival": ["baseline", "trimmed-mean", *few, "--trim", 0.0, "-o", at / "R"],
        "fedavg": ["baseline", "fedavg", *few, "--average", "uniform", "-o", at / "F"],
        "no trim": ["baseline", "trimmed-mean", *few, "--trim", 0.5, "-o", at / "no"],
        "blocks": [*blocks, "--clients", 3, "-o", at / "c.h5"],
        "no blocks": [*blocks, "-o", at / "no.h5"],
        "no alpha": [*blocks, "--clients", 3, "--alpha", 1, "-o", at / "no.h5"],
        "import": ["import", at / "x.json", "-o", at / "x.h5"],
        "status": ["status", at],
        "status --json": ["status", at, "--json"],
        "plot rows": ["plot", "rows", road.train, "-o", at / "plot.json"],
        **{name: name.split() for name in ("toy-bites", "solve -h", "plot confusion", "plot -h")},
        "count -h": ["count-rows", "-h"],
        "count": [*count, "-o", at / "rows.json"],
        "count again": [*count, "-o", at / "rows.json"],
        "few": [*count, "--at-least", 1000, "-o", at / "few.json"],
        "no count": [*count, "--at-least", -1, "-o", at / "no.json"],
        "no input": [*count, "-o", road.train, "--overwrite"],
        "study": ["study", at / "s.toml", "-o", at / "STUDY"],
        "table": ["table", at / "STUDY"],
    }  # fmt: skip
    done = dict(zip(lines, everything(at / "site").lines(*lines.values()), strict=True))
    failed = {name for name, one in done.items() if one.exit_code}
    wrong = {name for name in lines if name.startswith("no ")}
    assert failed == {"run, other", "toy-bites", "plot confusion", *wrong}, failed
    assert not [*at.glob("no*")]
    return SimpleNamespace(at=at, done=done, site=at / "site")


def test_a_head_of_a_plug_in_takes_the_whole_road(used, road):
    """Its options are checked as any head's; its version is in recipes, headers and summaries."""
    at, done = used.at, used.done
    assert "--shrink" in done["head -h"].stdout
    assert len(examples("A head")[0].splitlines()) <= 60
    said = {"prior=3": "--prior", "shrink=x": "--shrink", "shrink=2": "--shrink is 0 to 1",
            "ridge=1": "--ridge"}  # fmt: skip
    assert all(text in done[f"no {given}"].stderr for given, text in said.items())
    made = [json.loads(done[f"info {name}"].stdout) for name in ("total", "whole", "head")]
    assert made[0]["digest"] == made[1]["digest"]
    assert made[2]["name"] == "nearest-mean"
    found = json.loads(done["evaluate"].stdout)
    assert (found["n"], found["top1"] > 0.5) == (200, True)
    assert len((at / "p.csv").read_text().splitlines()) == 201
    assert "prior False → True" in done["run, other"].stderr
    for name in ("03-head0", "04-total", "05-head"):
        facts = json.loads(done[f"info {name}"].stdout)
        assert facts["recipe"]["inputs"]["afltool.heads"] == "toy-heads 1.0"
        assert facts["provenance"]["plugins"]["toy-heads"] == "1.0"
    assert json.loads((at / "RUN" / "summary.json").read_text())["versions"]["plugins"]
    assert 'head = "nearest-mean"' in (at / "S" / "run.toml").read_text()
    assert "plugins" not in afltool.info(road.head)["provenance"]
    assert all(name in done["table"].stdout for name in ("nearest-mean", "trimmed-mean"))


def test_a_rival_without_trimming_is_fedavg_with_equal_weights(used, monkeypatch):
    import torch

    assert "--trim is at least 0, below 0.5" in used.done["no trim"].stderr
    summary = json.loads((used.at / "R" / "summary.json").read_text())
    assert summary["settings"]["trim"] == 0.0
    with h5py.File(used.at / "R/head.h5") as x, h5py.File(used.at / "F/head.h5") as y:
        assert x["arrays"].keys() == y["arrays"].keys()
        for name in y["arrays"]:
            assert np.allclose(x["arrays"][name], y["arrays"][name], rtol=1e-5, atol=1e-6), name
    monkeypatch.syspath_prepend(used.site)
    from trimmed_mean import TrimmedMean

    theta = torch.tensor([[1.0, -900.0], [2.0, 4.0], [3.0, 5.0], [4.0, 6.0], [900.0, 7.0]])
    method = SimpleNamespace(settings=SimpleNamespace(trim=0.2))
    assert TrimmedMean.merge(method, 1, range(5), None, theta).tolist() == [3.0, 5.0]


def test_schemes_embeddings_commands_and_answers_of_plug_ins(used, road):
    """A name of afltool's own stays its own."""
    at, done = used.at, used.done
    assert afltool.info(at / "c.h5")["clients"] == 3
    assert afltool.info(at / "c.h5")["recipe"]["inputs"]["afltool.schemes"] == "toy-scheme 1.0"
    assert "--clients" in done["no blocks"].stderr
    assert "does not take --alpha" in done["no alpha"].stderr
    found = afltool.info(at / "x.h5")
    assert (found["rows"], len(found["classes"])) == (6, 2)
    assert re.search("^  count-rows +count the rows of each class$", done["help"].stdout, re.M)
    assert done["status"].stdout == "all is done\n"
    assert done["plot rows"].stdout == f"{at / 'plot.json'}\n"
    assert json.loads(done["status --json"].stdout) == {"toy": "all is done"}
    assert "No such command 'toy-bites'" in done["toy-bites"].stderr
    assert "  rows " in done["plot -h"].stdout
    assert "total" in done["solve -h"].stdout.lower()
    assert "Missing argument" in done["plot confusion"].stderr
    y = np.load(road.embeddings)["y"]
    assert "--at-least" in done["count -h"].stdout
    assert done["count"].stdout == done["count again"].stdout == f"{at / 'rows.json'}\n"
    assert sorted(json.loads((at / "rows.json").read_text()).values()) == sorted(np.bincount(y))
    assert json.loads((at / "few.json").read_text()) == {}
    assert "--at-least is at least 0; found -1" in done["no count"].stderr
    assert "(FEATURES)" in done["no input"].stderr


@pytest.mark.slow
def test_images_networks_and_exports_of_plug_ins(road, tmp_path):
    """What they do, and that a wrong one is refused: no classifier, weights that are not kept."""
    site = everything(tmp_path / "site")
    code = examples(OTHERS)[0]
    wrong = code.replace("nn.Linear(8, 2)", "nn.Identity()")
    wrong = wrong.replace("torch.from_numpy(found[name])", "1 + torch.from_numpy(found[name])")
    more = [("afltool.backbones", "flat = wrong:Tiny"), ("afltool.exporters", ".bad = wrong")]
    site.add("wrong", {"wrong": wrong}, more)
    rng, y = np.random.default_rng(0), np.arange(40) // 2 % 2
    x = (rng.integers(0, 90, (40, 9, 9, 3)) + 160 * y[:, None, None, None]).astype(np.uint8)
    split = np.where(np.arange(40) < 30, "train", "test")
    np.savez(tmp_path / "toy.npz", x=x, label=np.array(["dark", "light"])[y], split=split)
    how = ["--weights", "random", "--image-size", 9, "--preprocess", "paper"]
    how += ["--data", f"pixels:{tmp_path / 'toy.npz'}"]
    tiny, out = ["extract", "--backbone", "tiny", *how], tmp_path / "RUN"
    files = {name: tmp_path / f"{name}.h5" for name in ("train", "test")}
    done = site.lines(
        [*tiny, "--split", "train", "-o", files["train"]],
        [*tiny, "--split", "test", "-o", files["test"]],
        ["run", "--train-features", files["train"], "--test-features", files["test"],
         "--clients", 2, "--scheme", "iid", "--ridge", 0.1, "-o", out],
        ["export", out / "head-final.h5", "-o", tmp_path / "model.npz"],
        ["extract", "--backbone", "flat", *how, "-o", tmp_path / "no.h5"],
        ["export", road.head, "-o", tmp_path / "no.bad"],
    )  # fmt: skip
    assert [one.exit_code for one in done] == [0, 0, 0, 0, 2, 5], [one.stderr for one in done]
    facts = afltool.info(files["train"])
    assert (facts["space"]["dim"], facts["space"]["backbone"]) == (8, "tiny")
    assert facts["classes"] == ["dark", "light"]
    made_by = {"afltool.datasets": "toy-pixels 1.0", "afltool.backbones": "toy-data 1.0"}
    assert made_by.items() <= facts["recipe"]["inputs"].items()
    assert json.loads((out / "summary.json").read_text())["top1"] == 1.0
    assert np.load(tmp_path / "model.npz")["head.W"].shape == (8, 2)
    assert all(text in one.stderr for text, one in zip(("flat", "no.bad"), done[4:], strict=True))
    assert not [*tmp_path.glob("no.*")]


# ------------------------------------------------------------ whether a plug-in holds


def changed(code, *pairs):
    for right, wrong in pairs:
        assert code.count(right) == 1, right
        code = code.replace(right, wrong)
    return code


ADD, LEARNS = "add_up({", "replace(self, means=means, "
OFFSETS, SCORES = "offsets: F64 | None = state()", "+ self.offsets\n\n\ndef graph"
PHASE, IS_LEFT = 'Phase("means") if self.means is None', (OFFSETS, "offsets: F64 | None = None")
AGAIN = "replace(self, means=means if self.means is None else self.means + 1, "
#: Each law of a check, and what breaks it: (right, wrong) in the example of the page.
LAWS = {
    "its options have names of their own": [("    shrink:", "    clients:")],
    "its name in files is that of the plug-in": [('name = "nearest-mean"', 'name = "linear"')],
    "sums of clients add up": [(ADD, "add_up({'n': np.ones(1) * (len(y) > 0), ")],
    "the order of the rows does not matter": [("cross(X, y, c", "cross(X[:1], y[:1], c")],
    "the same sums give the same digest": [("sums = total", "sums = np.random.rand() + total")],
    "the sums of no rows add nothing": [(ADD, "add_up({'n': np.ones(1) * (not len(y)), ")],
    "the digest says that the head has learned": [
        (LEARNS, "replace(self, means=self.means, "), IS_LEFT,
    ],
    "what it learns changes no head before it": [
        ("return replace(", "object.__setattr__(self, 'means', means); return replace("),
    ],
    "it is solved after at most 3 rounds": [(f"{PHASE} else None", 'Phase("means")'),
                                            (LEARNS, AGAIN)],
    "a file gives the same head": [IS_LEFT],
    "scores are finite numbers": [(SCORES, SCORES.replace("\n", " + np.inf\n", 1))],
    "ZeroDivisionError": [("o, counts =", "1 / 0 or")],
}  # fmt: skip
WRONG = {
    "scheme": ("A scheme", "", {
        "15 rows without one": [("), names", "), names[:3]")],
        "assigned alike": [("np.arange(len", "np.random.permutation(len")],
        "NameError": [("import numpy as np", "")],
    }),
    "baseline": ("A baseline", ":TrimmedMean", {
        "not depend on --threads": [
            ("from pydantic import", "import torch\nfrom pydantic import"),
            ("kept.mean(dim=0)", "torch.rand(kept.shape[1:])"),
        ],
    }),
    "dataset": ("A data set", ":PIXELS", {
        "the same rows have the same fingerprint": [
            ("digest(x.tobytes(), *names)", "str(np.random.rand())"),
        ],
        "TypeError": [('found["x"][rows]', 'found["x"][rows].astype("f4")')],
    }),
    "head": ("A head", "", LAWS),
}  # fmt: skip
GROUP_OF = {"head": "heads", "baseline": "baselines", "dataset": "datasets", "scheme": "schemes"}


@pytest.mark.filterwarnings("ignore:One of rtol or atol:RuntimeWarning")  # of infinite scores
def test_the_checks_notice_what_is_wrong(tmp_path):
    site, laws, calls = everything(tmp_path / "site"), [], []
    x, label = np.zeros((4, 9, 9, 3), np.uint8), np.array(["a", "b"] * 2)
    np.savez(tmp_path / "toy.npz", x=x, label=label, split=np.array(["train"] * 4))
    (tmp_path / "x.json").write_text('{"x": [[1, 2], [3, 4]], "y": [0, 1]}')
    for kind, (section, place, changes) in WRONG.items():
        for i, (law, pairs) in enumerate(changes.items()):
            code = changed(examples(section)[0], *pairs)
            for own in ("nearest-mean", "trimmed-mean", '"pixels"', '"toy_pixels"'):
                code = code.replace(own, f'"{kind}{i}"' if own[0] == '"' else f"{kind}{i}")
            point = f"{kind}{i} = {kind}{i}{place}"
            site.add(f"{kind}{i}", {f"{kind}{i}": code}, [(f"afltool.{GROUP_OF[kind]}", point)])
            path = f":{tmp_path / 'toy.npz'}" if kind == "dataset" else ""
            laws.append(law)
            calls.append([f"check_{kind}", f"{kind}{i}{path}", *[{}, 3] * (kind == "head")])
    reader = changed(examples(OTHERS)[0],
                     ("iter([x])", "iter([x[1:]])"))  # fmt: skip
    site.add("short", {"short": reader}, [("afltool.embeddings", ".jsn = short:read")])
    (tmp_path / "x.json").rename(tmp_path / "x.jsn")
    found = site.checks(
        *calls, ["check_head", "nothing"], ["check_dataset", "pixels"], ["check_scheme", "blocks"],
        ["check_head", "nearest-mean", {"shrink": 0.5}],
        ["check_dataset", f"pixels:{tmp_path / 'toy.npz'}"],
    )  # fmt: skip
    [short] = site.lines(["import", tmp_path / "x.jsn", "-o", tmp_path / "no.h5"])
    wrong = [(law, one) for law, one in zip(laws, found, strict=False) if law not in one]
    assert not wrong
    *_, nothing, no_file, scheme, head, dataset = found
    assert "it is installed: 'nothing' is not in" in nothing
    assert "unknown data set 'pixels'" in no_file
    assert scheme == head == dataset == ""
    assert short.exit_code == 3
    assert "x.jsn" in short.stderr
    assert not (tmp_path / "no.h5").exists()


def test_the_heads_and_schemes_of_afltool_and_the_test_of_the_page_pass_the_checks(tmp_path):
    for name, options in {
        "linear": {"intercept": True}, "random-features": {"width": 8}, "softmax": {"rounds": 2},
        "discriminant": {"rule": "qda", "shrinkage": 0.1}, "safle": {"buckets": 4},
        "deepafl": {"layers": 1, "width": 8},
    }.items():  # fmt: skip
        testing.check_head(name, options)
    for name in SCHEMES.keys() - {"by-attribute", "file"}:  # their clients are in a table
        testing.check_scheme(name)
    with everything(tmp_path / "site").installed():
        exec(examples("A test")[0], tests := {})
        done = [check() for name, check in tests.items() if name.startswith("test_")]
    assert len(done) == 2


# ------------------------------------------------------------ what is loaded, and what cannot be

#: What a module may raise that no library would, beside what is wrong with it; None: no module.
BROKEN = (
    "1 / 0", "def (", "import no_such", "OPTIONS = 3", "raise Exception('x')", "raise EOFError",
    "class Own(Exception): pass\nraise Own('two\\nlines')", "raise MemoryError",
    "import sys\nsys.exit(1)", "raise SystemExit('bye')", "def commands(): raise SystemExit(1)",
    "def commands(): return {'x': 3}", "commands = 3", None,
)  # fmt: skip


def test_a_plug_in_that_cannot_be_loaded_is_named_and_stops_nothing(tmp_path):
    modules = {f"bad{i}": code for i, code in enumerate(BROKEN)}
    named = [(f"afltool.{g}", f"{n}-{g} = {n}") for g in (*GROUPS, "commands") for n in modules]
    site = Site(tmp_path / "site")
    codes = {name: code for name, code in modules.items() if code is not None}
    site.add("bad", codes, [*named, ("afltool.heads", "linear = bad0")])
    done = site.lines(
        ["--version"],
        *([*words, "-h"] for words in (["head"], [], ["run"], ["baseline"], ["head", "linear"])),
        ["run", "--help-all"], ["study", "--list"], ["toy-bites"],
    )  # fmt: skip
    assert [one.exit_code for one in done] == [0] * 8 + [2]
    assert done[0].stderr == ""
    head, top = done[1].stderr, done[2].stderr
    assert "the part linear (bad0, afltool.heads) cannot be loaded and is left out" in head
    assert "left out: MemoryError" in head
    assert "left out: SystemExit: bye" in head
    for name in modules:
        assert f"{name}-heads" in head
        assert f"the part {name}-commands" in top or name == "bad3"
    assert "Traceback" not in head + top + done[3].stderr
    assert [one.stdout[:14] for one in done[1:7]] == ["Usage: afltool"] * 6
    assert "baseline" in done[2].stdout
    assert "linear" in done[5].stdout
    assert "No such command 'toy-bites'" in done[8].stderr
    laws = site.checks(*(["check_head", f"{name}-heads"] for name in modules))
    assert all(laws), laws


LIGHT = """
import sys
from afltool.heads.options import HeadOptions
class OPTIONS(HeadOptions): "None."
print("loaded", __name__, *({"numpy", "torch"} & sys.modules.keys()), file=sys.stderr)
"""


def test_help_loads_few_plug_ins_and_ctrl_c_while_one_is_loaded_ends_the_command(road, tmp_path):
    """`-h` is at most 0.35 s of processor time: modules are counted, since time is not ours."""
    every = enumerate((*GROUPS, *GROUPS[:3]))
    named = [(f"afltool.{group}", f"p{i} = plug{i}") for i, group in every]
    named.append(("afltool.commands", "toy-bytes = interrupted"))
    modules = {f"plug{i}": LIGHT for i in range(10)} | {"interrupted": "raise KeyboardInterrupt"}
    site = Site(tmp_path / "site").add("ten", modules, named)
    info, head, run = in_turn([["info", road.head], ["head", "-h"], ["run", "-h"]], env=site.env)
    loads = [re.findall("^loaded .*", said, re.M) for said, *_ in (info, head, run)]
    assert loads[:2] == [[], ["loaded plug0 numpy", "loaded plug7 numpy"]]  # whose names it shows
    assert loads[2][0] == "loaded plug4 numpy"  # those of schemes
    ended = subprocess.run([COMMAND, "toy-bytes"], env=site.env, capture_output=True, text=True)
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
