"""The site: complete, within itself, searchable without a server; commands draw its pictures."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = DOCS / "site" / "mkdocs.yml"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MNIST = Path("/usr/share/datasets/fashion-mnist")
PNG = b"\x89PNG\r\n\x1a\n"


def menu():
    """The pages of each part of the menu."""
    nav = CONFIG.read_text().split("\nnav:\n")[1].split("\ntheme:")[0]
    parts = re.split(r"^  - (\w[\w ]*):", nav, flags=re.M)[1:]
    return {
        name: re.findall(r"[\w/-]+\.md", text)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def behind(page):
    """The pages that a page links, beside it."""
    text = (DOCS / page).read_text()
    return {str(Path(page).parent / name) for name in re.findall(r"\]\(([\w-]+\.md)", text)}


def test_every_page_is_in_the_menu_once_or_behind_a_link_of_it():
    named = sorted(page for part in menu().values() for page in part)
    named += sorted({*behind("results/README.md"), *behind("decisions/README.md")})
    root = {"changelog.md", "contributing.md", "security.md"}  # site/pages.py takes them
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | root
    assert sorted(named) == sorted(there)


def test_the_menu_can_be_read():
    """At most 45,000 words; results, measurements and decisions are behind a link each."""
    parts = ("Start", "Tutorials", "How to", "Reference", "Project")
    pages = [DOCS / page for part in parts for page in menu()[part] if (DOCS / page).exists()]
    assert sum(len(page.read_text().split()) for page in pages) <= 45_000


def test_a_page_has_at_most_a_screen_of_words_before_its_first_command():
    parts = "Start", "Tutorials", "How to", "Reference", "Results", "Measurements"
    pages = {page for part in parts for page in menu()[part]} | behind("decisions/README.md")
    for page in (pages | behind("results/README.md")) - {"glossary.md", "compatibility.md"}:
        text = (DOCS / page).read_text()
        first = re.search(r"^```|`(afltool|python|make) |^    python ", text, re.M)
        assert first, page
        assert len(text[: first.start()].split()) <= 250, page


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
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, env=env, check=True)
    runs = [tmp_path / name for name in ("run-10", "run-100")]
    few, many = (json.loads((run / "summary.json").read_text()) for run in runs)
    assert few["top1"] == many["top1"] > 0.9
    assert few["total_digest"] == many["total_digest"]


def test_the_readme_is_short_and_has_one_picture():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 770  # 700 words beside the marks of tables and drawings
    (picture,) = re.findall(r"!\[[^]]*\]\((.+?)\)", text)
    assert (ROOT / picture).stat().st_size < 100_000


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make site` does: warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", CONFIG, "-d", out],
        check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    return out


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="(.*?)"', page.read_text()
        )
        assert not [one for one in loaded if re.match(r"(https?:)?//", one)], page


@pytest.mark.slow
def test_the_reference_has_the_keywords_and_their_types(site):
    page = (site / "api.html").read_text()
    solve = page.split('id="afltool.solve"')[1].split('id="afltool.evaluate"')[0]
    text = html.unescape(re.sub(r"<.*?>", "", solve))
    assert "validate: Path | None = None" in text
    assert "head_options: dict" in text
    assert "Solve the head" in text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, as Debian's package")
@pytest.mark.parametrize(("words", "page"), [("a member leaves", "privacy"), ("codes", "safle")])
def test_the_search_works_from_a_file(site, tmp_path, words, page):
    """Where no name of a host is found; the address has the words, as somebody types them."""
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
             f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]  # fmt: skip
    address = (site / "index.html").as_uri() + "?q=" + words.replace(" ", "+")
    done = subprocess.run([CHROMIUM, *quiet, "--dump-dom", address], capture_output=True, text=True,
                          timeout=120, check=True)  # fmt: skip
    found = re.findall(r'href="([^"]*)" class="md-search-result__link"', done.stdout)
    assert any(page in one for one in found), found


def size(picture):
    """Width and height of a .png."""
    data = picture.read_bytes()
    assert data.startswith(PNG)
    return data[16:24]


LEVELS = 0.5  # of 255; here they are equal, but the edges of letters depend on versions of fonts


def difference(one, other):
    """Mean difference of the grey levels of two .png of one size, each averaged over 8 × 8."""
    greys = []
    for path in (one, other):
        with Image.open(path) as picture:
            small = picture.convert("L").reduce(8)
        greys.append(np.asarray(small, np.float64))
    assert greys[0].shape == greys[1].shape
    return float(np.abs(greys[0] - greys[1]).mean())


@pytest.mark.nightly
@pytest.mark.slow
def test_the_gallery_is_what_its_commands_draw(tmp_path):
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "make_gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    kept = {path.name: path for path in (DOCS / "gallery").iterdir()}
    drawn = {path.name: path for path in gallery.draw(tmp_path)}
    assert drawn.keys() == kept.keys()
    with_seconds = "rounds.png"  # how long each layer took differs between machines
    assert size(drawn.pop(with_seconds)) == size(kept[with_seconds])
    away = {name: difference(path, kept[name]) for name, path in drawn.items()}
    assert max(away.values()) <= LEVELS, away


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not MNIST.exists(), reason="needs Debian's dataset-fashion-mnist")
def test_the_picture_of_the_readme_is_drawn_by_its_commands(tmp_path):
    """Of few images, short rivals and narrow heads here."""
    lines = re.findall(r"^#   (afltool .*)$", (ROOT / "examples" / "bytes.toml").read_text(), re.M)
    few = "--limit 300 --image-size 32 --clients 20 --seeds 1 --rounds 2 --width 32"
    few += " --layers 2 --experts 16"
    study, plot = (line.replace("examples/", f"{ROOT}/examples/") for line in lines)
    plot = plot.replace("docs/site/", "")
    subprocess.run(["bash", "-ec", f"{study} {few}\n{plot}"], cwd=tmp_path, check=True)
    assert size(tmp_path / "bytes.png") == size(DOCS / "site" / "bytes.png")
