"""Pages of studies, runs and trials: self-contained, escaped, and working in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from conftest import counts_of_heads

import afltool
from afltool import report, table
from afltool.errors import InputError, UsageError
from afltool.files.features import open_features
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.pages import templates
from afltool.lab.studies.plots import compute_points, get_line_options
from afltool.lab.studies.results import load_current, load_results
from afltool.lab.studies.spec import find
from afltool.lab.studies.tables import frame

pytest.importorskip("matplotlib")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NOTHING_ASKED = r'(?:src|href)="(?!data:)|https?://|@import|url\('


@pytest.fixture(scope="module")
def page(done_study, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "page.html"
    return report(done_study, out, published="afl-1:cifar10").read_text()


def test_text_from_outside_is_escaped_and_nothing_is_asked_of_the_network(page):
    assert "A &lt;b&gt;study&lt;/b&gt; &amp; more" in page
    assert not re.search("<b>|<i>", page)
    assert page.count("</script>") == 1
    assert "default-src 'none'" in page
    assert not re.search(NOTHING_ASKED, page)
    shown = templates().from_string("{{ text }}").render(text='a"<\x1b\n')
    assert shown == "a&#34;&lt;\\x1b\\n"


def test_every_cell_has_its_command_and_its_digests(done_study, page):
    folder = StudyFolder(done_study)
    for cell in find(str(done_study)).cells:
        found = load_current(folder, cell)
        assert all(digest in page for digest in found["digests"].values())
        assert html.escape(f"-o {folder.cell(cell.key)}") in page
    assert page.count('class="cell"') == 12
    said = "mean ± standard deviation over seeds; published ± are standard deviations"
    assert re.findall(r"<caption>([^<]*)</caption>", page)[0] == said
    assert "MB sent by a client, at most" in page


def test_a_page_says_why_a_cell_failed_and_costs_of_our_own_options(copied_study, tmp_path):
    place = StudyFolder(copied_study).cell(find(str(copied_study)).cells[0].key)
    shutil.rmtree(place)
    place.mkdir()
    (place / StudyFolder.FAILED).write_text("out of <memory>\n")
    chosen = {"columns": "", "where": ("alpha=1", "head=AFL <i>"), "published": "safle-3:cifar10"}
    page = report(copied_study, tmp_path / "p.html", rows="head,backbone", **chosen).read_text()
    assert "11 of 12 cells done" in page
    assert "<dt>why</dt><dd>out of &lt;memory&gt;</dd>" in page
    costs = page.split("<h2>Costs</h2>")[1].split("<h2>")[0]
    assert "vit_b_16" in page.split("<h2>Costs</h2>")[0]
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


def probed(page, tmp_path, width):
    """What `PROBE` finds of a page in a window of this width."""
    place = tmp_path / "page.html"
    place.write_text(page.replace("<head>", "<head>" + PROBE, 1))
    # Flags that keep the browser from asking anything of a network.
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-gpu"]  # fmt: skip
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet, "--dump-dom",
               f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]  # fmt: skip
    done = subprocess.run(
        [*command, place.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    told = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    return json.loads(html.unescape(told[1]))


def browser(test):
    missing = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, as Debian's package")
    return pytest.mark.slow(missing(test))


@browser
@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_works_in_a_browser(page, tmp_path, width, trial_page):
    found = probed(trial_page, tmp_path, width)
    assert (found["wrong"], found["images"], found["wide"]) == ([], [True], True)
    found = probed(page, tmp_path, width)
    assert found["wrong"] == []
    assert found["images"] == [True] * page.count("<img ")
    assert len(found["images"]) >= 2
    assert found["wide"], "nothing but tables scrolls sideways"
    assert found["buttons"] == 12 + 2
    orders = {(one["at"], one["sort"]): one["cells"] for one in found["orders"]}
    assert len(orders) == 6
    for (at, sort), cells in orders.items():
        told = [one for one in cells if one != "–"]
        assert cells == told + ["–"] * cells.count("–"), "what has no number is last"
        by = [one.casefold() if at == 0 else float(one.split()[0]) for one in told]
        assert by == sorted(by, reverse=sort == "descending"), (at, sort)


@browser
def test_a_table_of_many_columns_is_whole_on_paper(done_study, tmp_path):
    """As wide as A4 without its margins; what is for paper alone is there for the screen."""
    many = "top1,seconds,upload_bytes,download_bytes"
    text = report(done_study, tmp_path / "many.html", value=many).read_text()
    assert text.count("@media print") == 1
    found = probed(text.replace("@media print", "@media all"), tmp_path, 718)
    assert found["wide"], "no table is wider than the page"


# ------------------------------------------------------------ pictures


def test_the_lines_of_a_picture_are_the_cells(done_study):
    found = frame(load_results(done_study))
    assert get_line_options(found, "alpha") == ["head"]
    points = compute_points(found, "alpha", "top1", ["head"])
    assert list(points["name"].unique()) == [("AFL <i>",), ("_Deep | 100%, $x$",), ("fedavg",)]
    of_fedavg = points[[one == ("fedavg",) for one in points["name"]]]
    assert of_fedavg["x"].tolist() == [0.1, 1.0]
    wanted = [100 * e["value"] for e in table(done_study).records() if e["row"] == "fedavg"]
    assert of_fedavg["y"].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--x", "alpha", "-o", "p.gif"], "a picture is a .png, .svg, .pdf file"),
        (["--x", "color", "-o", "p.png"], "no cell has the option 'color'"),
        (["--x", "alpha", "--y", "beauty", "-o", "p.png"], "--y is of top1"),
        (["--x", "csr", "-o", "p.png"], "there is nothing to draw: no cell has both CSR and top1"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(
    done_study, tmp_path, cli, monkeypatch, words, error
):
    monkeypatch.chdir(tmp_path)
    made = cli("plot", "study", done_study, *words)
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
    assert not re.search(NOTHING_ASKED, trial_page)
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


def test_what_has_no_page_is_refused(road, trial, tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copy(road.head, tmp_path / "a" / "head.h5")
    for of, name, more, words in (
        (tmp_path / "a", "page.html", {}, "no counts of a solved head"),
        (trial, "page.txt", {}, r"a page is an \.html file"),
        (trial, "page.html", {"rows": "head"}, "--rows is for the table of a study"),
    ):
        with pytest.raises((InputError, UsageError), match=words):
            afltool.report(of, tmp_path / name, **more)


@pytest.mark.parametrize("of", ["run", "baseline"])
def test_a_run_has_a_page_of_its_figures_options_and_digests(of, copied_study, tmp_path, cli):
    """The cells of a study are folders of runs and of baselines."""
    cell = next(copied_study.glob({"run": "cells/linear-*", "baseline": "cells/fedavg-*"}[of]))
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
