"""The documentation says what the program does."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from conftest import command_of

ROOT = Path(__file__).parents[1]


def reference(script="make_commands.py"):
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_reference_is_what_the_commands_say():
    page = reference().page()
    assert page == (ROOT / "docs" / "commands.md").read_text(), "run python docs/make_commands.py"


@pytest.mark.slow
def test_a_type_checker_knows_every_keyword(tmp_path):
    """Good calls are accepted; wrong names, wrong types and missing files are refused."""
    good = [
        'solve("t.h5", "h.h5", head_options={"ridge": "auto"}, overwrite=True)',
        'local_stats("x.h5", x, "s", client="all")',
        'aggregate(["a.h5", x], "t.h5")',
        'local_stats(Path("x.h5"), "linear", Path("s"), partition=Path("p.h5"), sum=True)',
        'baseline("fedavg", x, Path("B"), partition=x, test=x, settings={"rounds": 3})',
        "evaluate(Path('h.h5'), Path('x.h5'))['top1']",
    ]
    wrong = [
        'solve(x, x, head_option={"ridge": 1})', 'solve(x, x, threads="two")', "solve(x)",
        "solve(x, x, ridge=1.0)", 'local_stats(x, "linear", x, partition=3)', "solve(3, x)",
        "local_stats(x)", 'local_stats(x, "linear", x, summ=True)', 'aggregate(3, x)',
        'baseline("fedavg", x, x)', "solve(x, x) + 1", "no_such_name()",
    ]  # fmt: skip
    code = "".join(f"afltool.{call}\n" for call in good + wrong)
    (tmp_path / "calls.py").write_text(
        f'from pathlib import Path\nimport afltool\nx = Path("x.h5")\n{code}'
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", tmp_path / "calls.py"],  # strict, and the cache of make lint
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split(":")[1] for line in found.stdout.splitlines() if ": error:" in line]
    first = 4 + len(good)
    expected = [str(first + i) for i in range(len(wrong))]
    assert sorted({*lines}, key=int) == expected, found.stdout + found.stderr


def test_every_option_has_a_help_text():
    from afltool.cli.app import app

    for name, command in reference().commands(command_of(app), "afltool"):
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", ""), f"{name} {parameter.name}"


def test_readme_and_recipes_name_only_commands_and_options_that_exist():
    text = "\n".join((ROOT / name).read_text() for name in ("README.md", "docs/recipes.md"))
    page = reference().page()
    known = set(re.findall(r"--[a-z][a-z-]*", page)) | {"--json", "--quiet", "--version"}
    assert set(re.findall(r"--[a-z][a-z-]*", text)) <= known
    commands = set(re.findall(r"^## afltool ([a-z-]+)", page, re.M))
    named = set(re.findall(r"`?afltool ([a-z][a-z-]+)", text)) - {"over"}
    assert named <= commands
    assert {"extract", "partition", "local-stats", "aggregate", "solve", "evaluate"} <= named


def test_the_commands_of_the_results_can_be_given():
    from afltool.cli.app import app
    from afltool.papers.description import find, read, shipped_names

    results = ROOT / "docs" / "results"
    text = (results / "README.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^(study|afltool) (.*)$", text, re.M)
    assert len(lines) > 10
    for start, rest in lines:
        words = shlex.split(rest, comments=True)
        if start == "study":  # SET STUDY FOLDER OPTIONS, as the function of the page takes them
            folder, name, at, *options = words
            if name.endswith(".toml"):
                like = tomllib.loads((results / name).read_text())["study"]["like"]
                assert read(results / name).count() >= find(like).count() - 18  # codes of one digit
            else:
                assert name in shipped_names()
            words = ["study", name, *options, "-o", f"{folder}/{at}"]
        command = command_of(app)
        while hasattr(command, "resolve_command"):
            context = command.make_context("given", [*words])
            _, command, words = command.resolve_command(context, words)
        command.make_context("given", words)


def test_every_format_name_is_documented():
    from afltool.files import schema
    from afltool.files.headers import KINDS

    text = (ROOT / "docs" / "format.md").read_text()
    for name in (schema.FORMAT, schema.FORMAT_VERSION, schema.HEADER_SHA256, schema.COMPLETE):
        assert f"`{name}`" in text
    for kind in KINDS:
        assert f"`{kind}`" in text


def test_the_changelog_has_an_unreleased_part():
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()


def test_the_trees_of_the_format_are_those_that_readers_check():
    """Every member and every header field of every kind is drawn, with its mark."""
    from afltool.files import schema
    from afltool.files.headers import KINDS, Header

    text = (ROOT / "docs" / "format.md").read_text()
    block = text.split("○ optional", 1)[1].split("```")[1]
    drawn = {}
    for left in (slice(0, 30), slice(30, None)):
        kind = ""
        for line in (one[left].rstrip() for one in block.splitlines()):
            if line and line[0].isalpha():
                kind = line
                drawn[kind] = set()
            for mark, name in re.findall(r"[├└]── ([●○]) (\S+)", line):
                if name.startswith("/") or not line.startswith(("│       ", "    ")):
                    drawn[kind].add((name, mark))
    optional = (schema.SPARSE, schema.EFFECTIVE_LABELS)
    common = {field.name for field in msgspec.structs.fields(Header)}
    sometimes = {("head", "arrays"), ("features", "labels")}
    for kind in KINDS:
        fields = {
            (field.name, "●" if field.required else "○")
            for field in msgspec.structs.fields(KINDS[kind])
            if field.name not in common
        }
        members = {
            (f"/{name}", "○" if name in optional or (kind, name) in sometimes else "●")
            for name in (*KINDS[kind].MEMBERS, schema.HEADER)
        }
        assert drawn[kind] - {("NAME", "●"), ("NAME", "○")} == fields | members, kind
    assert {(name, "●") for name in common} <= drawn["every kind"]


# Words of the field in help texts; each is explained. A plain word of English needs no entry.
TERMS = re.findall(r"\S+", """
    accuracy activation alpha backbone batch bootstrap cache checksum class client code confidence
    confusion cross-correlation digest distillation epoch feature fisher fold gamma gram group head
    label layer mask member node noise participation partition penultimate phase pooling
    preprocessing preset projection random rank recipe residual ridge round scheme seed sensitivity
    shard site softmax space specificity split stage statistics store target temperature thresholds
    top-1 total view
""")  # fmt: skip


def glossary():
    text = (ROOT / "docs" / "glossary.md").read_text()
    return {
        word.strip().lower()
        for words in re.findall(r"^\| \*\*(.+?)\*\*", text, re.M)
        for word in re.split(r"[,() ]+", words)
    }


def test_the_glossary_explains_the_words_that_the_help_uses():
    page, known = reference().page().lower(), glossary()
    used = [term for term in TERMS if re.search(rf"\b{term}s?\b", page)]
    assert len(used) > 45, "the premise: the help uses these words"
    assert not {term for term in used if term not in known}
    for word in ("ridge", "γ", "λ", "α", "gcv"):
        assert word in known


def test_every_registry_that_the_docs_name_is_there():
    from importlib import import_module

    text = (ROOT / "docs" / "extending.md").read_text()
    found = re.findall(r"`([A-Z]+)` in `afltool/([a-z_/]+?)(?:/__init__)?\.py`", text)
    assert len(found) >= 4
    for name, path in found:
        assert hasattr(import_module("afltool." + path.replace("/", ".")), name), (name, path)


def test_the_map_of_the_package_names_modules_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`(afltool/[\w/.]*)`", text)
    assert len(named) > 30
    assert not [path for path in named if not (ROOT / path).exists()]
    packages = {
        path.name for path in (ROOT / "afltool").iterdir() if (path / "__init__.py").exists()
    }
    assert not {name for name in packages if f"`{name}`" not in text}


@pytest.mark.parametrize(("folder", "files"), [("benchmarks", "bench_*.py"), ("examples", "*.*")])
def test_each_benchmark_and_example_is_in_its_table(folder, files):
    table = (ROOT / folder / "README.md").read_text()
    named = re.findall(r"^\| `(\S+)` \|", table, re.M)
    assert named == sorted(
        path.name for path in (ROOT / folder).glob(files) if path.suffix != ".md"
    )


def test_links_between_pages_lead_somewhere():
    folders = [ROOT / name for name in ("benchmarks", "examples")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages += [folder / "README.md" for folder in folders]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
