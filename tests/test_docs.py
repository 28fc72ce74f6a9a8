"""The documentation says what the program does, and its site is whole."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from conftest import command_of

import afltool

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = DOCS / "site" / "mkdocs.yml"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def module_of(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands", "api"])
def test_a_generated_page_is_what_the_program_says(name):
    page = module_of(f"make_{name}").page()
    assert page == (DOCS / f"{name}.md").read_text(), f"run python docs/make_{name}.py"
    assert "` |  |" not in page, "an option without a help text"


def test_the_changelog_has_every_old_name_and_what_stands_in_its_place():
    assert module_of("make_commands").changes() == (ROOT / "CHANGELOG.md").read_text()


def test_readme_and_recipes_name_only_commands_and_options_that_exist():
    text = "\n".join(path.read_text() for path in (ROOT / "README.md", DOCS / "recipes.md"))
    page = (DOCS / "commands.md").read_text()
    known = set(re.findall(r"--[a-z][a-z-]*", page)) | {"--json", "--quiet", "--version"}
    assert set(re.findall(r"--[a-z][a-z-]*", text)) <= known
    named = set(re.findall(r"`?afltool ([a-z][a-z-]+)", text)) - {"over"}
    assert named <= set(re.findall(r"^## afltool ([a-z-]+)", page, re.M))
    assert {"extract", "local-stats", "solve"} <= named


def test_the_commands_of_the_results_can_be_given():
    from afltool.cli.app import app
    from afltool.lab.studies.spec import list_shipped

    text = (DOCS / "results" / "README.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^(study|afltool) (.*)$", text, re.M)
    assert len(lines) > 10
    for start, rest in lines:
        words = shlex.split(rest, comments=True)
        if start == "study":  # SET STUDY FOLDER OPTIONS, as the function of the page takes them
            folder, name, at, *options = words
            assert name in list_shipped() or (DOCS / "results" / name).exists()
            words = ["study", name, *options, "-o", f"{folder}/{at}"]
        command = command_of(app)
        while hasattr(command, "resolve_command"):
            _, command, words = command.resolve_command(command.make_context("x", [*words]), words)
        command.make_context("given", words)


def test_the_format_has_every_member_and_every_field_of_headers():
    from afltool.files import schema
    from afltool.files.headers import KINDS, Header

    text = (DOCS / "format.md").read_text()
    named = {schema.FORMAT, schema.FORMAT_VERSION, schema.HEADER_SHA256, schema.COMPLETE, *KINDS}
    for of in (Header, *KINDS.values()):
        named |= {field.name for field in msgspec.structs.fields(of)}
    assert not [name for name in named if f"`{name}`" not in text and f" {name} " not in text]
    members = {f"/{name}" for of in KINDS.values() for name in (*of.MEMBERS, schema.HEADER)}
    assert not [name for name in members if name not in text]


def test_names_of_files_registries_and_pages_lead_somewhere():
    folders = [ROOT / name for name in ("benchmarks", "examples")]
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(at / "README.md" for at in folders)]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
    guides = (DOCS / "extending.md").read_text() + (DOCS / "architecture.md").read_text()
    for path in re.findall(r"`(afltool/[\w/.]*)`", guides):
        assert (ROOT / path).exists() or "NAME" in path, path
    for name, path in re.findall(r"`([A-Z_]+)` (?:in|of) `(afltool/[\w/]+\.py)`", guides):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(), re.M), (name, path)
    for at, files in zip(folders, ("bench_*.py", "*.*"), strict=True):
        table = re.findall(r"^\| `(\S+)` \|", (at / "README.md").read_text(), re.M)
        assert table == sorted(path.name for path in at.glob(files) if path.suffix != ".md")


def test_the_version_is_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "afltool.__version__"
    citation, changes = (ROOT / n for n in ("CITATION.cff", "CHANGELOG.md"))
    (date,) = re.findall(r"^date-released: (\d{4}-\d\d-\d\d)$", citation.read_text(), re.M)
    assert f"\nversion: {afltool.__version__}\n" in citation.read_text()
    newest = re.findall(r"^## (\d.*)$", changes.read_text(), re.M)[0]
    assert newest == f"{afltool.__version__} ({date})"


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
    lines = {line.split(":")[1] for line in found.stdout.splitlines() if ": error:" in line}
    first = 4 + len(good)
    assert lines == {str(first + i) for i in range(len(wrong))}, found.stdout + found.stderr


# ------------------------------------------------------------ the site


def test_every_page_is_in_the_menu_once_or_behind_a_link_and_the_menu_can_be_read():
    """Results, measurements and decisions are behind one link each, outside of the words."""
    menu = CONFIG.read_text().split("\nnav:\n")[1].split("\ntheme:")[0]
    read, behind = menu.split("  - Results:")
    folders = re.findall(r"(\w+)/README\.md", behind)
    links = [
        f"{folder}/{name}"
        for folder in folders
        for name in set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / folder / "README.md").read_text()))
    ]
    root = {"changelog.md", "contributing.md", "security.md"}  # site/pages.py takes them
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | root
    assert sorted(re.findall(r"[\w/-]+\.md", menu) + links) == sorted(there)
    pages = [DOCS / name for name in re.findall(r"[\w/-]+\.md", read) if name not in root]
    assert sum(len(page.read_text().split()) for page in pages) <= 45_000
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.slow
def test_the_first_block_does_what_it_says(tmp_path):
    """Of the README and the site; its first line, which installs, is what `make dist` follows."""
    block, same = (
        re.search(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)[1]
        for page in ("README.md", "docs/index.md")
    )
    assert block == same
    install, *lines = block.splitlines()
    assert install == "pip install ./packaging/light"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, check=True)
    runs = [tmp_path / name for name in ("run-10", "run-100")]
    few, many = (json.loads((run / "summary.json").read_text()) for run in runs)
    assert few["top1"] == many["top1"] > 0.9
    assert few["total_digest"] == many["total_digest"]


@pytest.mark.slow
def test_the_site_is_whole_and_searched_from_a_file(tmp_path):
    """Built as `make site` does, where warnings are errors; nothing is fetched from elsewhere."""
    site, env = tmp_path / "site", {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", CONFIG, "-d", site]
    subprocess.run(build, check=True, env=env)
    loads = r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="((?:https?:)?//.*?)"'
    assert not [page for page in site.rglob("*.html") if re.search(loads, page.read_text())]
    page = (site / "api.html").read_text()
    solve = page.split('id="afltool.solve"')[1].split('id="afltool.evaluate"')[0]
    text = html.unescape(re.sub(r"<.*?>", "", solve))
    for said in ("validate: Path | None = None", "head_options: dict", "Solve the head"):
        assert said in text
    if CHROMIUM is None:
        return
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
             f"--user-data-dir={tmp_path / 'chromium'}", "--virtual-time-budget=20000"]  # fmt: skip
    address = (site / "index.html").as_uri() + "?q=members+collude"
    shown = subprocess.run([CHROMIUM, *quiet, "--dump-dom", address], capture_output=True,
                           text=True, timeout=120, check=True).stdout  # fmt: skip
    found = re.findall(r'href="([^"]*)" class="md-search-result__link"', shown)
    assert any("privacy" in one for one in found), found


@pytest.mark.nightly
@pytest.mark.slow
def test_the_pictures_of_the_gallery_are_drawn_by_its_commands(tmp_path):
    drawn = {path.name for path in module_of("make_gallery").draw(tmp_path)}
    assert drawn == {path.name for path in (DOCS / "gallery").iterdir()}
