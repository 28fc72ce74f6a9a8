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


def test_every_page_is_in_the_menu_once():
    named = sorted(page for part in menu().values() for page in part)
    root = {"changelog.md", "contributing.md", "security.md"}  # site/pages.py takes them
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | root
    assert named == sorted(there)


def test_a_page_has_at_most_a_screen_of_words_before_its_first_command():
    parts = "Start", "Tutorials", "How to", "Gallery", "Reference", "Results", "Decisions"
    for part in parts:
        for page in {*menu()[part]} - {"glossary.md", "compatibility.md"}:
            text = (DOCS / page).read_text()
            first = re.search(r"^```|`(afltool|python|make) |^    python ", text, re.M)
            assert first, page
            assert len(text[: first.start()].split()) <= 250, page


def test_the_first_block_of_the_site_does_what_it_says(tmp_path):
    """Its first line, which builds and installs, is what `make dist` follows."""
    block = re.search(r"^```sh\n(.*?)^```$", (DOCS / "index.md").read_text(), re.M | re.S)[1]
    build, *lines = block.splitlines()
    assert re.match(r"python packaging/light/build.py dist light && pip install dist/", build)
    assert any(line.startswith("afltool run") for line in lines)
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        y = np.arange(60) % 3
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(60, 5)) + 4 * np.eye(3, 5)[y], y=y)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, env=env, check=True)
    assert json.loads((tmp_path / "RUN" / "summary.json").read_text())["top1"] > 0.9


def test_the_readme_is_short_and_has_one_picture():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") < 120
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
