"""Pages of studies, runs and trials: self-contained, escaped, and working in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from conftest import carried_out, counts_of_heads

import afltool
from afltool import report, table
from afltool.errors import InputError, UsageError
from afltool.files.features import open_features
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.pages import templates
from afltool.lab.studies.plots import lines_of, points_of
from afltool.lab.studies.results import finished, results_of
from afltool.lab.studies.spec import find, read
from afltool.lab.studies.tables import frame

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


def test_text_from_outside_is_escaped(page, done, tmp_path):
    assert "A &lt;b&gt;study&lt;/b&gt; &amp; more" in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("</script>") == 1
    shown = templates().from_string("{{ text }}").render(text='a"<\x1b\n')
    assert shown == "a&#34;&lt;\\x1b\\n"
    with pytest.raises(UsageError, match=r"a page is an \.html file"):
        report(done, tmp_path / "page.pdf")


def test_every_cell_has_its_command_and_its_digests(done, page):
    folder = StudyFolder(done)
    for cell in find(str(done)).cells:
        found = finished(folder, cell)
        assert all(digest in page for digest in found["digests"].values())
        assert html.escape(f"-o {folder.cell(cell.key)}") in page
    assert page.count('class="cell"') == 8


def test_the_page_says_what_the_papers_have_behind_plus_and_minus(done, tmp_path):
    found = report(done, tmp_path / "p.html", published="afl-1:cifar10").read_text()
    shown = "mean ± standard deviation over seeds; published ± are standard deviations"
    assert re.findall(r"<caption>([^<]*)</caption>", found)[0] == shown


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
def test_the_page_works_in_a_browser(done, page, tmp_path, width, trial_page):
    place = tmp_path / "trial.html"
    place.write_text(trial_page.replace("<head>", "<head>" + PROBE, 1))
    shown = browse(place, tmp_path / "profile", "--dump-dom", f"--window-size={width},900")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)[1]))
    assert (found["wrong"], found["images"], found["wide"]) == ([], [True], True)

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


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--x", "alpha", "-o", "p.gif"], "a picture is a .png, .svg, .pdf file"),
        (["--x", "color", "-o", "p.png"], "no cell has the option 'color'"),
        (["--x", "alpha", "--y", "beauty", "-o", "p.png"], "--y is of top1"),
        (["--x", "csr", "-o", "p.png"], "there is nothing to draw: no cell has both CSR and top1"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(done, tmp_path, cli, monkeypatch, words, error):
    monkeypatch.chdir(tmp_path)
    made = cli("plot", "study", done, *words)
    assert made.exit_code == 2
    assert error in made.stderr
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------ a trial, a run


@pytest.fixture(scope="module")
def trial(road, tmp_path_factory):
    """Two members, one of whom sent its counts to a place that is not here."""
    root, away = tmp_path_factory.mktemp("trial"), tmp_path_factory.mktemp("away")
    shutil.copy(road.head, root / "head.h5")
    with open_features(road.test) as rows:
        ids = [one.decode() for one in rows.row_ids]
    lines = [f"{one},{'f' if i % 2 else 'm'}" for i, one in enumerate(ids)]
    (away / "sex.csv").write_text("\n".join(["row,sex", *lines]) + "\n")
    by = f"{away / 'sex.csv'}:sex"
    north = afltool.counts(road.head, road.test, root / "sent", client="north", group_by=by)
    west = afltool.counts(road.head, road.test, away / "sent", client="<b>west", group_by=by)
    afltool.aggregate([north, west], root / "total.h5", allow_repeats=True)
    return root


@pytest.fixture(scope="module")
def trial_page(trial):
    return afltool.report(trial, trial / "page.html").read_text()


def test_the_page_has_what_its_readers_need(road, trial, trial_page):
    top1 = afltool.evaluate(road.head, road.test)["top1"]
    told = re.sub(r"<[^>]+>", " ", trial_page)
    for words in (
        f"predicts about {100 * top1:.0f} right", "2 members, 400 rows, 4 classes",
        f"{top1:.4f} (", "at most", "Members", "By class", "By group",
        "What left the sites",
        afltool.info(trial / "total.h5")["digest"],
    ):  # fmt: skip
        assert words in told, words
    assert trial_page.count("data:image/svg+xml") == 1, (
        "no reliability: its scores are no probabilities"
    )
    assert "calibration error" not in told
    assert "&lt;b&gt;west" in trial_page
    assert "<b>west" not in trial_page
    assert not re.search(r'(?:src|href)="(?!data:)', trial_page)
    assert "default-src 'none'" in trial_page


def test_heads_stand_beside_each_other_and_sites_too(road, tmp_path):
    """Figures are those of `evaluate`: of both heads on all rows, of the first on each site's."""
    weak = afltool.solve(road.total, tmp_path / "weak.h5", head_options={"ridge": 1e5})
    sites = afltool.split(road.test, tmp_path / "sites", test_size=0.3)
    for name, rows in zip(("north", "west"), sites, strict=True):
        counts_of_heads([road.head, weak], rows, tmp_path / "trial" / "sent", client=name)
    afltool.aggregate([tmp_path / "trial" / "sent"], tmp_path / "trial" / "total.h5")
    page = afltool.report(tmp_path / "trial", tmp_path / "page.html").read_text()
    told = re.sub(r"<[^>]+>", " ", page)
    shares = sorted(afltool.evaluate(road.head, rows)["top1"] for rows in sites)
    between = "Between sites the accuracy of head 0 goes from {:.1%} to {:.1%}, with a standard"
    assert between.format(*shares) in told
    both = [afltool.evaluate(one, road.test)["top1"] for one in (road.head, weak)]
    assert both[0] != both[1]
    (line,) = re.findall(r"<tr><th[^>]*>accuracy</th>(.*?)</tr>", page)
    cells = [float(one) for one in re.findall(r"<td>([\d.]+) ", line)]
    assert cells == [pytest.approx(one, abs=5e-5) for one in both]


def test_only_a_folder_with_counts_has_a_page(road, trial, tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copy(road.head, tmp_path / "a" / "head.h5")
    with pytest.raises(InputError, match="no counts of a solved head"):
        afltool.report(tmp_path / "a", tmp_path / "page.html")
    with pytest.raises(UsageError, match=r"\.html"):
        afltool.report(trial, tmp_path / "page.txt")
    with pytest.raises(UsageError, match="--rows is for the table of a study"):
        afltool.report(trial, tmp_path / "page.html", rows="head")


@pytest.mark.parametrize("of", ["run", "baseline"])
def test_a_run_has_a_page_of_its_figures_options_and_digests(of, done, tmp_path, cli):
    """The cells of a study are folders of runs and of baselines."""
    cells = shutil.copytree(done / "cells", tmp_path / "cells")
    cell = next(cells.glob({"run": "linear-*", "baseline": "fedavg-*"}[of]))
    out = tmp_path / "page.html"
    assert cli("report", cell, "-o", out).exit_code == 0
    summary, told = json.loads((cell / "summary.json").read_text()), out.read_text()
    for word in (
        f"top-1 {summary['top1']:.2%} of 200 test rows", summary["digests"]["total" if of == "run"
        else "head"], f"afltool status {cell}" * (of == "run"),
        "clients" if of == "run" else "batch-size",
    ):  # fmt: skip
        assert word in html.unescape(told), word
    assert told.count("data:image/svg+xml") == 1, "a confusion matrix, or two rounds"
    assert cli("report", cell, "-o", tmp_path / "two.html", "--rows", "head").exit_code == 2
    (cell / "summary.json").write_text("{}")
    assert cli("report", cell, "-o", tmp_path / "two.html").exit_code == 3
    assert not (tmp_path / "two.html").exists()
