"""The page and the pictures of a study: self-contained, escaped, and working in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from conftest import carried_out

from afltool import report, table
from afltool.errors import UsageError
from afltool.papers.cells import StudyFolder
from afltool.papers.description import find, read
from afltool.papers.frames import frame
from afltool.papers.options import StudyPicture
from afltool.papers.page import templates
from afltool.papers.plots import lines_of, points_of, runs_by_name, study_picture
from afltool.papers.results import finished, results_of

pytest.importorskip("matplotlib")
ALPHA = {"x": "alpha", "width_mm": 84.0}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TEXT = """
train-features = "{train}"
test-features = "{test}"
clients = 6
seed = [0, 1]
alpha = [0.1, 1]

[study]
title = "A <b>study</b> & more"
shows = "What </script> is shown."
published = "afl-A.3"

[[method]]
label = "AFL <i>"
head = "linear"
[[method]]
baseline = "fedavg"
rounds = 2
threads = 1
"""


@pytest.fixture(scope="module")
def done(road, tmp_path_factory):
    at = tmp_path_factory.mktemp("page")
    (at / "s.toml").write_text(TEXT.format(train=road.train, test=road.test))
    return carried_out(read(at / "s.toml"), at / "S")


@pytest.fixture(scope="module")
def page(done):
    return report(done, done.parent / "page.html").read_text()


def test_the_page_asks_nothing_of_the_network(page):
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page)
    assert not re.findall(r"https?://|@import|url\(", page)


def test_text_from_outside_is_escaped(page):
    assert "A &lt;b&gt;study&lt;/b&gt; &amp; more" in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("</script>") == 1
    shown = templates().from_string("{{ text }}").render(text='a"<\x1b\n')
    assert shown == "a&#34;&lt;\\x1b\\n"


def test_every_cell_has_its_command_and_its_digests(done, page):
    folder = StudyFolder(done)
    for cell in find(str(done)).cells:
        found = finished(folder, cell)
        assert all(digest in page for digest in found["digests"].values())
        assert html.escape(f"-o {folder.cell(cell.key)}") in page
    assert page.count('class="cell"') == 8
    assert "FedFisher" in page, "the published figures, although none has a column of ours"


def test_the_page_says_what_the_papers_have_behind_plus_and_minus(done, tmp_path):
    found = report(done, tmp_path / "p.html", published="afl-1:cifar10").read_text()
    shown = "mean ± standard deviation over seeds; published ± are standard deviations"
    assert re.findall(r"<caption>([^<]*)</caption>", found)[0] == shown
    assert "<caption>as published, ± are standard deviations</caption>" in found


def test_a_page_is_html(done, tmp_path):
    with pytest.raises(UsageError, match=r"a page is an \.html file"):
        report(done, tmp_path / "page.pdf")


def test_the_command_writes_the_page(done, tmp_path, cli):
    place = tmp_path / "p.html"
    assert cli("report", done, "-o", place).stdout == f"{place}\n"
    assert place.read_text().startswith("<!DOCTYPE html>")


def test_a_cell_that_failed_says_why(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "S")
    cell = find(str(copy)).cells[0]
    place = StudyFolder(copy).cell(cell.key)
    shutil.rmtree(place)
    place.mkdir()
    (place / StudyFolder.FAILED).write_text("out of <memory>\n")
    shown = report(copy, tmp_path / "p.html").read_text()
    assert "7 of 8 cells done" in shown
    assert "<dt>why</dt><dd>out of &lt;memory&gt;</dd>" in shown


def test_costs_are_of_the_options_that_our_cells_have(done, tmp_path):
    chosen = {"columns": "", "where": ("alpha=1",), "published": "safle-3:cifar10"}
    chosen["rows"] = "head,backbone"
    shown = report(done, tmp_path / "p.html", **chosen).read_text()
    costs = shown.split("<h2>Costs</h2>")[1].split("<h2>")[0]
    assert "vit_b_16" in shown.split("<h2>Costs</h2>")[0]
    assert "AFL &lt;i&gt;" in costs
    assert "vit_b_16" not in costs


def test_cells_keep_their_names_where_their_folder_is_a_link(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "S")
    paths = [StudyFolder(copy).cell(cell.key) for cell in find(str(copy)).cells]
    before = runs_by_name(paths)
    (copy / StudyFolder.CELLS).rename(tmp_path / "elsewhere")
    (copy / StudyFolder.CELLS).symlink_to(tmp_path / "elsewhere")
    assert runs_by_name(paths) == before
    assert len(before[0]) == 4
    assert before[1] == []


# ------------------------------------------------------------ in a browser

PROBE = """<script>
const wrong = [];
addEventListener("error", (e) => wrong.push(String(e.message || e.target.src)), true);
addEventListener("securitypolicyviolation", (e) => wrong.push(e.violatedDirective));
addEventListener("load", () => {
  const table = document.querySelector("table"), head = table.tHead.rows[0].cells;
  const column = (at) => Array.from(table.tBodies[0].rows, (row) => row.cells[at].textContent);
  const found = {wrong, orders: []};
  for (let at = 0; at < head.length; at++)
    for (let i = 0; i < 2; i++) {
      head[at].querySelector("button").click();
      found.orders.push({at, sort: head[at].getAttribute("aria-sort"), cells: column(at)});
    }
  const images = Array.from(document.images);
  found.images = images.map((one) => one.complete && one.naturalWidth > 0 && one.alt !== "");
  found.wide = document.documentElement.scrollWidth <= innerWidth;
  found.buttons = document.querySelectorAll(".copy").length;
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>"""


def browse(place, profile, *more):
    # Flags that keep the browser from asking anything of a network.
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-gpu"]  # fmt: skip
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={profile}"]
    done = subprocess.run([*command, *more, place.as_uri()], capture_output=True, text=True,
                          timeout=120, check=True)  # fmt: skip
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, as Debian's package")
@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_works_in_a_browser(done, page, tmp_path, width):
    place = tmp_path / "page.html"
    place.write_text(page.replace("<head>", "<head>" + PROBE, 1))
    shown = browse(place, tmp_path / "profile", "--dump-dom", f"--window-size={width},900")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)[1]))
    assert found["wrong"] == []
    assert found["images"] == [True] * page.count("<img ")
    assert len(found["images"]) >= 2
    assert found["wide"], "nothing but tables scrolls sideways"
    assert found["buttons"] == 8 + 2
    orders = {(one["at"], one["sort"]): one["cells"] for one in found["orders"]}
    assert len(orders) == 6
    for (at, sort), cells in orders.items():
        told = [one for one in cells if one != "–"]
        assert cells == told + ["–"] * cells.count("–"), "what has no number is last"
        by = [one.casefold() if at == 0 else float(one.split()[0]) for one in told]
        assert by == sorted(by, reverse=sort == "descending"), (at, sort)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, as Debian's package")
def test_a_table_of_many_columns_is_whole_on_paper(done, tmp_path):
    """As wide as A4 without its margins; what is for paper alone is there for the screen."""
    many = "top1,seconds,upload_bytes,download_bytes"
    place = report(done, tmp_path / "page.html", value=many)
    text = place.read_text()
    assert text.count("@media print") == 1
    place.write_text(text.replace("@media print", "@media all").replace("<head>", "<head>" + PROBE))
    shown = browse(place, tmp_path / "profile", "--dump-dom", "--window-size=718,900")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)[1]))
    assert found["wide"], "no table is wider than the page"


# ------------------------------------------------------------ pictures


def test_the_lines_of_a_picture_are_the_cells(done):
    found = frame(results_of(done))
    assert lines_of(found, "alpha") == ["head"]
    points = points_of(found, "alpha", "top1", ["head"])
    assert list(points["name"].unique()) == [("AFL <i>",), ("fedavg",)]
    of_fedavg = points[[one == ("fedavg",) for one in points["name"]]]
    assert of_fedavg["x"].tolist() == [0.1, 1.0]
    made = table(done, published="none")
    assert of_fedavg["y"].tolist() == pytest.approx(
        (100 * made.numbers.loc[("ours", "fedavg")]).tolist()
    )


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_a_picture_is_of_the_format_of_its_name(done, tmp_path, suffix):
    start = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[suffix]
    place = study_picture(StudyPicture(done, tmp_path / f"p.{suffix}", **ALPHA))
    assert place.read_bytes().startswith(start)
    again = study_picture(StudyPicture(done, tmp_path / f"again.{suffix}", **ALPHA))
    assert again.read_bytes() == place.read_bytes()


def test_the_width_is_that_of_the_column(done, tmp_path):
    place = study_picture(StudyPicture(done, tmp_path / "p.svg", **{**ALPHA, "x": "upload_bytes"}))
    points = float(re.search(r'width="([\d.]+)pt"', place.read_text())[1])
    assert points == pytest.approx(84 / 25.4 * 72, abs=0.5)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--x", "alpha", "-o", "p.gif"], "a picture is a .png, .svg, .pdf file"),
        (["--x", "colour", "-o", "p.png"], "no cell has the option 'colour'"),
        (["-o", "p.png"], "Missing option '--x'"),
        (["--x", "alpha", "--y", "beauty", "-o", "p.png"], "--y is of top1"),
        (["--x", "layers", "-o", "p.png"], "no cell has the option 'layers'"),
        (["--x", "csr", "-o", "p.png"], "there is nothing to draw: no cell has both CSR and top1"),
        (["--x", "alpha", "--y", "csr", "-o", "p.png"], "there is nothing to draw"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(done, tmp_path, cli, monkeypatch, words, error):
    monkeypatch.chdir(tmp_path)
    made = cli("plot", "study", done, *words)
    assert made.exit_code == 2
    assert error in made.stderr
    assert not list(tmp_path.iterdir())
