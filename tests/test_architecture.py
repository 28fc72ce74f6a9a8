"""Imports point downwards only, and what only one layer may do is done nowhere else."""

from __future__ import annotations

import ast
import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

import afltool
from afltool.stages.stage import STAGES

ROOT = Path(afltool.__file__).parent

# From the bottom to the top; a module may import from its own layer's package and from below.
# Several names in one layer may not import each other.
LAYERS = (
    ("errors", "machine"),
    ("inputs", "progress"),
    ("plugins",),
    ("values",),
    ("memory",),
    ("cores",),
    ("options",),
    ("math",),
    ("partitions",),
    ("heads",),
    ("files",),
    ("sources",),
    ("exporting",),
    ("show",),
    ("stages", "estimator"),
    ("plans",),
    ("api",),
    ("cli",),
    ("rivals",),
    ("papers",),
    ("federation",),
    ("testing",),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
ROOT_MODULE = {"__version__"}  # all that a module may take from the package itself
#: Their commands come by entry points, see pyproject.toml; tests of packages import the last.
APART = {"papers", "rivals", "federation", "testing"}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text())


@cache
def nodes(module):
    """Every node of a module's code: walked once for all tests."""
    return tuple(ast.walk(tree(module)))


@cache
def imports(module):
    return tuple(_imports(module))


def _imports(module):
    """(absolute module, imported name or None, line) of every import, at any depth of the code."""
    path = MODULES[module]
    package = ["afltool", *path.relative_to(ROOT).parent.parts]
    for node in nodes(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                yield ".".join([*base, *filter(None, [node.module])]), alias.name, node.lineno


def ours(module):
    """The modules of afltool that a module imports, without the leading 'afltool.'."""
    for name, imported, line in imports(module):
        if name.split(".")[0] != "afltool":
            continue
        inner = name.removeprefix("afltool").removeprefix(".")
        joined = f"{inner}.{imported}".removeprefix(".")
        yield (joined if joined in MODULES else inner), imported, line


def layer(module):
    return module.split(".")[0]


def foreign(module):
    return {(name.split(".")[0], line) for name, _, line in imports(module)}


def test_every_module_has_a_place():
    places = {layer(m) for m in MODULES if m not in ("__init__", "__main__")}
    assert places <= HEIGHT.keys(), "add the new module to LAYERS, at its height"
    assert set(HEIGHT) == places


def test_no_folder_has_the_name_of_a_function_of_the_package():
    """Importing the folder would put the module in place of the function."""
    assert not {layer(m) for m in MODULES} & set(afltool.__all__)


def test_imports_point_downwards():
    for module in MODULES.keys() - {"__init__", "__main__"}:
        for target, name, line in ours(module):
            if target == "":
                assert name in ROOT_MODULE, f"{module}:{line} imports {name} from the package"
            elif layer(target) != layer(module):
                assert HEIGHT[layer(target)] < HEIGHT[layer(module)], f"{module}:{line} → {target}"


def test_the_main_part_never_imports_papers_rivals_nor_federation():
    """The package itself names their functions as text, which loads nothing."""
    for module in MODULES.keys() - {"__init__", "__main__"}:
        if layer(module) not in APART:
            assert not {layer(target) for target, _, _ in ours(module)} & APART, module


OF_SESSIONS = {"cryptography", "nacl", "bcrypt", "fsspec", "flwr"}


def test_the_core_needs_nothing_of_sessions():
    """What they need is installed with afltool[session] alone."""
    for module in MODULES:
        if layer(module) != "federation":
            assert not {name for name, _ in foreign(module)} & OF_SESSIONS, module
    wanted = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    core = " ".join(wanted["dependencies"])
    session = " ".join(wanted["optional-dependencies"]["session"])
    assert not [name for name in ("cryptography", "pynacl", "bcrypt") if name in core]
    assert [name for name in ("cryptography", "pynacl", "bcrypt") if name not in session] == []


def test_papers_know_the_rivals_at_one_place():
    modules = MODULES.keys() - {"__init__"}  # it names their function for type checkers
    knows = {m for m in modules if "rivals" in {layer(t) for t, _, _ in ours(m)}}
    assert {m for m in knows if layer(m) not in ("rivals", "testing")} == {"papers.cells"}


def test_the_check_sees_imports_wherever_they_are():
    """The premise: relative and absolute imports, at the top, in functions and for types only."""
    assert ("errors", "AflError") in {(t, n) for t, n, _ in ours("files.heads")}
    assert ("sources.backbones.models", "load_backbone") in {
        (t, n) for t, n, _ in ours("sources.extraction.torch_engine")
    }
    assert ("files.schema", "schema") in {(t, n) for t, n, _ in ours("files.hdf5")}
    assert any(name == "torch" for name, _ in foreign("sources.backbones.inference"))


def circles(graph):
    """Groups of modules that import each other, directly or through others (Tarjan, 1972)."""
    order, low, stack, found = {}, {}, [], set()

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.add(tuple(sorted(group)))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def test_no_modules_import_in_a_circle():
    """Of all modules, inside folders too; imports in functions and for types alone count."""
    graph = {m: {t for t, _, _ in ours(m)} & MODULES.keys() - {m, "__init__"} for m in MODULES}
    assert circles(graph) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "a"}, "d": {"a"}}) == {("a", "b", "c")}


def test_the_first_line_says_what_a_module_is_for():
    """One sentence, on one line."""
    for module in MODULES:
        first, _, rest = (ast.get_docstring(tree(module)) or "").partition("\n")
        assert first.endswith("."), f"{module}: {first!r}"
        assert len(first.split()) >= 3, f"{module}: {first!r}"
        assert not rest or rest.startswith("\n"), f"{module}: the first line goes on in the second"


def test_one_stage_never_imports_another():
    """Nor does a plan import one: it knows them as values."""
    stages = {m for m in MODULES if m.startswith("stages.") and not m.startswith("stages._")}
    own = {stage.call.STAGE.partition(":")[0] for stage in STAGES.values()}
    assert own < stages
    plans = {m for m in MODULES if m.startswith("plans.") and m != "plans.checks"}
    values = {"stages.stage", "stages.runner"}
    for module in (stages | plans) - values:
        assert not {t for t, _, _ in ours(module)} & (stages - values), module


ONLY = {
    "h5py": {"files"},
    "filelock": {"files.locks"},
    "fsspec": {"federation.place"},
    "cryptography": {"federation"},
    "nacl": {"federation"},
    "torchvision": {"sources.images.*", "sources.backbones.*"},
    "timm": {"sources.backbones.*"},
    "open_clip": {"sources.backbones.*"},
    "transformers": {"sources.backbones.*"},
    "PIL": {"sources.images.*", "sources.backbones.*"},
    "sklearn": {"sources.images.*", "estimator"},
    "matplotlib": {"show", "papers.plots"},
    "typer": {"cli", "federation.cli", "papers.commands", "rivals.commands"},
    "rich": {"cli", "show"},
    "torch": {
        "sources.images.*",
        "sources.backbones.*",
        "rivals",
        "sources.extraction.torch_engine",
        "exporting",
        "heads.graphs",
        "heads.*.graph",
        "math.counts",
    },
    "onnxruntime": {"exporting.onnx_files", "sources.extraction.engines"},
    "openvino": {"sources.extraction.engines"},
    "pyarrow": {"files.tables", "sources.embeddings.*"},
    "safetensors": {
        "sources.backbones.*",
        "sources.embeddings.*",
    },
    "pandas": {
        "files.tables",
        "files.features",
        "papers.crosstab",
        "papers.frames",
        "papers.plots",
        "papers.published",
        "papers.tables",
    },
    "click": set(),
    "dill": set(),
    "joblib": set(),
}


@pytest.mark.parametrize("package", ONLY)
def test_who_may_import(package):
    users = {m for m in MODULES if any(name == package for name, _ in foreign(m))}
    for module in users:
        allowed = any(fnmatch(module, rule) or layer(module) == rule for rule in ONLY[package])
        assert allowed, f"{module} imports {package}"
    assert bool(users) == bool(ONLY[package]), "a rule that nothing follows any more"


def test_only_pictures_are_shown_by_a_stage():
    """What a stage computes and writes is below what is shown of it."""
    showing = {"estimator", "plans", "stages"}
    users = {m for m in MODULES if any(layer(t) == "show" for t, _, _ in ours(m))}
    assert {m for m in users if layer(m) in showing} == {"stages.plot"}


#: Advice that several errors give.
ADVICE = ("REALS", "FRACTION_BITS", "ONE_LIST")


def test_no_computation_names_an_option_but_in_advice():
    """Who computes does not know who asked: only the ``advice`` of an error names what helps."""
    for module in MODULES:
        if layer(module) in ("math", "values"):
            may = {node.value for node in nodes(module) if isinstance(node, ast.Expr)}
            for node in nodes(module):
                given = isinstance(node, ast.keyword) and node.arg == "advice"
                if given or (
                    isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ADVICE
                ):
                    may |= {*ast.walk(node.value)}
            for node in nodes(module):
                text = getattr(node, "value", None) if node not in may else None
                if isinstance(text, str):
                    assert not re.search(r"--[a-z]", text), f"{module}:{node.lineno}: {text}"


def test_linalg_and_statistics_do_no_input_or_output():
    banned = {"open", "print", "input"}
    for module in MODULES:
        if layer(module) in ("math", "partitions", "heads") or module == "values.statistics":
            names = {n.id for n in nodes(module) if isinstance(n, ast.Name)}
            assert not names & banned, module
            assert not {name for name, _ in foreign(module)} & {"pathlib", "os", "io"}, module


def attribute_chains(nodes):
    """Dotted names such as np.random.seed among nodes of code, with their lines."""
    for node in nodes:
        parts, inner = [], node
        while isinstance(inner, ast.Attribute):
            parts, inner = [inner.attr, *parts], inner.value
        if parts and isinstance(inner, ast.Name):
            yield ".".join([inner.id, *parts]), node.lineno


GENERATORS = {"default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "RandomState"}


def test_no_global_random_generator():
    for module in MODULES:
        for name, line in attribute_chains(nodes(module)):
            parts = name.split(".")
            if parts[:2] in (["np", "random"], ["numpy", "random"]) and len(parts) > 2:
                assert parts[2] in GENERATORS, f"{module}:{line} uses {name}"
        assert not {"random"} & {name for name, _ in foreign(module)}, f"{module} imports random"


# Where files are written and given their names. An archive of a data set is unpacked as a folder.
WRITES = {
    "json.dump": set(),
    # A cell in a message; and what is signed, whose bytes are canonical.
    "json.dumps": {"values.text", "files.tables", "federation.keys"},
    "os.replace": {"files.atomic", "sources.images.tiny_imagenet"},
    "os.rename": set(),
    "os.link": {"files.atomic"},
    "h5py.File": {"files.hdf5", "files.outputs", "files.feature_writer", "files.arrays"},
}


def test_files_are_written_and_opened_in_one_place():
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                allowed = WRITES.get(called, {module})
                assert module in allowed, f"{module}:{node.lineno} calls {called}"
                at_once = called.split(".")[-1] in ("savez", "tofile")  # into `replacing` there:
                assert not at_once or module == "files.row_cache", f"{module}:{node.lineno}"
                writes = isinstance(node.func, ast.Attribute) and node.func.attr in (
                    "write_text", "write_bytes",
                )  # fmt: skip
                assert not writes, f"{module}:{node.lineno}: `files.atomic` writes files"


def test_torch_is_seeded_only_where_its_state_is_put_back():
    """torchvision draws random weights from torch's global generator and takes no other."""
    seeding = {"torch.manual_seed", "torch.seed", "torch.random.manual_seed"}
    for module in MODULES:
        guarded = {
            line
            for node in nodes(module)
            if isinstance(node, ast.With) and "fork_rng" in ast.unparse(node.items[0])
            for name, line in attribute_chains(ast.walk(node))
        }
        lines = {line for name, line in attribute_chains(nodes(module)) if name in seeding}
        assert lines <= guarded, module


def test_nothing_is_unpickled_but_after_a_checksum():
    """np.load and torch.load never execute what a file says."""
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                called = ast.unparse(node.func)
                if called in ("np.load", "numpy.load"):
                    assert given.get("allow_pickle") is False, f"{module}:{node.lineno}"
                if called == "torch.load":
                    assert given.get("weights_only") is True, f"{module}:{node.lineno}"


NEVER_CALLED = {
    "eval", "exec", "compile", "__import__",  # of text
    "read_pickle", "hub.load", "jit.load", "load_module", "exec_module", "run_path",
    "yaml.load", "marshal.loads", "marshal.load", "os.system", "os.popen",
}  # fmt: skip


def test_nothing_in_a_file_is_executed():
    """No evaluator of text, no other unpickler: what a user or a client sends is data."""
    banned = {"yaml", "marshal", "shelve", "cloudpickle", "runpy", "code", "codeop"}
    for module in MODULES:
        assert not {name for name, _ in foreign(module)} & banned, module
        for node in nodes(module):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            ends = {called, called.split(".")[-1], ".".join(called.split(".")[-2:])}
            if called.startswith("re."):  # re.compile is of patterns
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("eval", "compile"):
                continue  # a model's eval(), a kernel's compile(): methods, not the built-ins
            assert not ends & NEVER_CALLED, f"{module}:{node.lineno} calls {called}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle":
                    assert getattr(keyword.value, "value", None) is False, f"{module}:{node.lineno}"
                if keyword.arg == "weights_only":
                    assert getattr(keyword.value, "value", None) is True, f"{module}:{node.lineno}"


def test_nothing_unpickles():
    """torchvision does, of CIFAR's published files, whose checksums are compared first."""
    for module in MODULES:
        names = {name for name, _ in attribute_chains(nodes(module)) if name.startswith("pickle.")}
        assert not names, module


def test_the_layers_are_the_ones_of_the_documentation():
    """errors below values below math below heads below files below stages below cli."""
    order = ("errors", "values", "math", "heads", "files", "show", "stages", "plans", "cli")
    assert all(HEIGHT[a] < HEIGHT[b] for a, b in pairwise(order))


def test_the_house_stays_as_simple_as_it_became():
    """Short functions, code as the formatter writes it, tests that go through commands."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    lengths = [
        n.end_lineno - n.lineno + 1 for m in MODULES for n in nodes(m) if isinstance(n, functions)
    ]
    assert len(lengths) > 2000
    assert median(lengths) <= 8
    skipped = sum(path.read_text().count("# fmt: skip") for path in MODULES.values())
    assert skipped <= 40
    tests = Path(__file__).parent.glob("*.py")
    assert sum(len(re.findall(r"patch\.setattr\(", path.read_text())) for path in tests) <= 40
