"""Imports point downwards only, and what only one layer may do is done nowhere else.

ruff holds what it has a rule for: no global generator, no evaluator of text, no unpickling.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import afltool

ROOT = Path(afltool.__file__).parent
#: From the bottom to the top: a module may import from its own layer's package and from below.
#: Several names in one layer may not import each other. What is above `cli` enters the command by
#: entry points: the main part knows nothing of it.
LAYERS = (
    "errors renamed system", "inputs progress", "plugins", "values", "memory", "parallel",
    "options",
    "math", "partitions", "heads", "files", "datasets", "embeddings", "backbones", "extraction",
    "exporting", "rendering", "stages estimator", "runs", "api", "cli", "lab", "lab.baselines",
    "lab.studies", "federation", "testing",
)  # fmt: skip
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer.split()}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
INNER = sorted(MODULES.keys() - {"__init__", "__main__"})


@cache
def nodes(module):
    """Every node of a module's code: walked once for all tests."""
    return tuple(ast.walk(ast.parse(MODULES[module].read_text())))


@cache
def imports(module):
    """(absolute module, imported name or None, line) of every import, at any depth of the code."""
    package = ["afltool", *MODULES[module].relative_to(ROOT).parent.parts]
    found = []
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found += [(alias.name, None, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            found += [(name, alias.name, node.lineno) for alias in node.names]
    return found


def ours(module):
    """The modules of afltool that a module imports, without the leading 'afltool.'."""
    for name, imported, line in imports(module):
        if name.split(".")[0] == "afltool":
            inner = name.removeprefix("afltool").removeprefix(".")
            joined = f"{inner}.{imported}".removeprefix(".")
            yield (joined if joined in MODULES else inner), imported, line


def layer(module):
    """The first name of a module; of `lab` the first two."""
    names = module.split(".")
    return ".".join(names[: 2 if names[0] == "lab" else 1])


def foreign(module):
    return {name.split(".")[0] for name, _, _ in imports(module)}


def test_imports_point_downwards_and_never_in_a_circle():
    """Those in functions and for types alone, too; each module has its place in the order."""
    assert {layer(m) for m in INNER} == HEIGHT.keys()
    for module in INNER:
        for target, name, line in ours(module):
            where = f"{module}:{line} → {target or name}"
            assert target or name == "__version__", where
            below = not target or HEIGHT[layer(target)] < HEIGHT[layer(module)]
            assert below or layer(target) == layer(module), where
    graph = {m: {t for t, _, _ in ours(m)} & MODULES.keys() - {m, "__init__"} for m in MODULES}
    TopologicalSorter(graph).prepare()
    assert {"heads.base", "files.schema"} <= graph["files.heads"], "the premise: it sees them"
    assert not {layer(m) for m in MODULES} & {*afltool.__all__}, "a folder would hide the function"


def test_one_stage_never_imports_another():
    """Nor does a plan import one: it knows them as values."""
    values = {"stages.stage", "stages.runner"}
    stages = {m for m in MODULES if m.startswith("stages.") and not m.startswith("stages._")}
    plans = {m for m in MODULES if m.startswith("runs.") and m != "runs.validation"}
    for module in (stages | plans) - values:
        assert not {t for t, _, _ in ours(module)} & (stages - values), module


#: Who may import a package, or a folder of ours; nobody: for good.
ONLY = {
    "h5py": "files",
    "filelock": "files.locks",
    "fsspec": "federation.place",
    "cryptography": "federation",
    "nacl": "federation",
    "flwr": "",
    "torchvision": "datasets.* backbones.*",
    **dict.fromkeys(("timm", "open_clip", "transformers"), "backbones.*"),
    "PIL": "datasets.* backbones.*",
    "sklearn": "datasets.* estimator",
    "matplotlib": "rendering lab.studies.plots",
    "typer": "cli federation.cli lab.studies.commands lab.baselines.commands",
    "rich": "cli rendering",
    "torch": "datasets.* backbones.* extraction.torch_engine extraction.frozen lab.baselines "
    "exporting heads.graphs math.counts",
    "onnxruntime": "exporting.onnx_files extraction.engines",
    "openvino": "extraction.engines",
    "pyarrow": "files.tables embeddings.*",
    "safetensors": "backbones.* embeddings.*",
    "pandas": "files.tables lab.studies",
    **dict.fromkeys(("click", "dill", "joblib", "pickle", "yaml", "marshal", "shelve"), ""),
    **dict.fromkeys(("cloudpickle", "runpy", "random"), ""),
    "afltool.lab.baselines": "lab.studies.cells lab.baselines testing",
    "afltool.rendering": "rendering stages.plot cli lab.baselines lab.studies federation",
}


@pytest.mark.parametrize("package", ONLY)
def test_who_may_import(package):
    inner = package.removeprefix("afltool.")
    users = {m for m in INNER if inner in ({layer(t) for t, _, _ in ours(m)} | foreign(m))}
    rules = ONLY[package].split()
    for module in users:
        allowed = any(fnmatch(module, rule) or layer(module) == rule for rule in rules)
        assert allowed, f"{module} imports {package}"
    assert bool(users) == bool(rules), "a rule that nothing follows any more"


def test_the_core_is_installed_without_what_sessions_need():
    wanted = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    core, session = wanted["dependencies"], wanted["optional-dependencies"]["session"]
    for name in ("cryptography", "pynacl", "bcrypt"):
        assert (name in " ".join(core), name in " ".join(session)) == (False, True), name


def test_what_computes_does_no_input_or_output():
    for module in MODULES:
        if layer(module) in ("math", "partitions", "heads") or module == "values.statistics":
            names = {n.id for n in nodes(module) if isinstance(n, ast.Name)}
            assert not names & {"open", "print", "input"}, module
            assert not foreign(module) & {"pathlib", "os", "io"}, module


#: Where files are written and get their names; an archive of a data set is unpacked as a folder.
CALLED = {
    **dict.fromkeys(("json.dump", "os.rename", "compile", "__import__"), ""),
    # A cell in a message.
    "json.dumps": "values.text files.tables",
    "os.replace": "files.atomic datasets.tiny_imagenet",
    "os.link": "files.atomic",
    "h5py.File": "files.hdf5 files.features",
    ".write_text": "",
    ".write_bytes": "",
    ".savez": "",
    ".tofile": "",
}


def test_files_are_written_in_one_place_and_never_unpickled():
    """torchvision unpickles CIFAR's published files, whose checksums are compared first."""
    for module in MODULES:
        for node in (n for n in nodes(module) if isinstance(n, ast.Call)):
            called = ast.unparse(node.func)
            end = f".{called.rpartition('.')[2]}" if "." in called else called
            where = f"{module}:{node.lineno} calls {called}"
            assert module in CALLED.get(called, CALLED.get(end, module)).split(), where
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            asked = {"np.load": {"allow_pickle": False}, "torch.load": {"weights_only": True}}
            assert asked.get(called, {}).items() <= given.items(), where
            assert given.get("allow_pickle", False) is False, where
            assert given.get("weights_only", True) is True, where
            assert end not in (".read_pickle", ".load_module", ".exec_module", ".popen"), where
            assert called not in ("torch.hub.load", "torch.jit.load"), where


def test_torch_is_seeded_only_where_its_state_is_put_back():
    """torchvision draws random weights from torch's global generator and takes no other."""

    def seeds(inside):
        calls = (node for node in inside if isinstance(node, ast.Call))
        return {c.lineno for c in calls if re.search(r"torch\.(manual_)?seed", ast.unparse(c.func))}

    for module in MODULES:
        forks = (n for n in nodes(module) if isinstance(n, ast.With))
        guarded = (seeds(ast.walk(n)) for n in forks if "fork_rng" in ast.unparse(n.items[0]))
        assert seeds(nodes(module)) == {*()}.union(*guarded), module


DOTS = """
import numpy as np
from .base import DatasetRequest, ImageDataset, array_dataset
def open_rows(request: DatasetRequest) -> ImageDataset:
    pixels = np.arange(640, dtype=np.uint8).reshape(10, 8, 8)
    return array_dataset(request, ["a", "b"], pixels, np.arange(10) % 2, "dots")
"""
#: Rows of "What to change for …": the files of each with a line before
#: and after; "": a new file, which may be an example of docs/extending.md.
CHANGES = {
    "head": {
        "heads/nearest_mean.py": ("", "A head"),
        "options/common.py": (
            "OWN_HEADS = {", 'OWN_HEADS = {"nearest-mean": ".nearest_mean:HEAD",'
        ),
    },
    "option of a stage": {
        "options/features.py": ("    test_size: Ann", '    least: int = Field(default=1, ge=1, '
                                'description="rows of a part")\n    test_size: Ann'),
        "stages/rows.py": ("if not 0 < test < n:", "if not o.least <= test < n:"),
    },
    "field of a header": {
        "files/headers.py": ("    rows_digest: str\n", "    rows_digest: str\n    rows: Whole\n"),
        "files/partitions.py": ('"scheme": dict(p.scheme),',
                                '"scheme": dict(p.scheme), "rows": len(p.labels),'),
    },
    "metric": {"math/metrics/figures.py": (
        '    "f1"', '    "error": Figure(lambda rows, w: 1 - _mean(rows.right, w)),\n    "f1"')},
    "data set": {
        "datasets/dots.py": ("", DOTS),
        "options/datasets.py": ("_OWN = (", '_OWN = (\n    DatasetName("dots", ".dots"),'),
    },
    "baseline": {
        "lab/baselines/trimmed_mean.py": ("", "A baseline"),
        "lab/baselines/__init__.py": (
            '{\n        "fedavg"',
            '{\n        "trimmed-mean": ".trimmed_mean:TrimmedMean",\n        "fedavg"',
        ),
    },
}  # fmt: skip


@pytest.mark.slow
def test_six_usual_changes_touch_the_files_that_the_page_names(road, tmp_path):
    """Each is made in a copy of the package, whose commands then have it."""
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    examples = (ROOT.parent / "docs" / "extending.md").read_text()
    copy = shutil.copytree(ROOT, tmp_path / "afltool")
    for what, files in CHANGES.items():
        [named] = re.findall(rf"^\| {what} \|(.*)", page, re.M)
        for name, (before, after) in files.items():
            path, code = copy / name, after
            assert any(f"`afltool/{at}`" in named for at in (name, f"{Path(name).parent}/")), what
            if before:
                assert path.read_text().count(before) == 1, name
                code = path.read_text().replace(before, after)
            elif after in ("A head", "A baseline"):
                example = examples.partition(f"\n## {after}\n")[2]
                code = re.search(r"```python\n(.*?)```", example, re.S)[1]
            path.write_text(code)
    lines = f"""
run --train-features {road.train} --test-features {road.test} --clients 3 --scheme iid
    --head nearest-mean --shrink 0.1 -o R
split {road.train} --least 400 -o S
info R/02-clients.h5 --field rows
evaluate {road.head} {road.test} --metrics error
extract --data dots --backbone timm:test_resnet --weights random --image-size 8
    --engine torch -o dots.h5
baseline trimmed-mean --help-all"""
    shell = "\n".join(f"afltool {line}" for line in lines.replace("\n    ", " ").split("\n")[1:])
    script = f"afltool() {{ '{sys.executable}' -m afltool \"$@\" || echo $?; }}\n{shell}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.stdout.splitlines()[:3] == ["R", "3", "600"], done.stderr
    for text in ("choose another --test-size", "│ error", "dots.h5", "--trim <float>"):
        assert text in said, text
