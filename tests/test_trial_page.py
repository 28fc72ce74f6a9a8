"""The page of a finished trial: what each of its readers needs, and nothing that asks a network."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest
from conftest import counts_of_heads
from test_study_page import CHROMIUM, PROBE, browse

import afltool
from afltool.errors import InputError, UsageError
from afltool.files.features import open_features


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
    north = afltool.counts(road.head, road.test, root / "sent", client="north", by=by)
    west = afltool.counts(road.head, road.test, away / "sent", client="<b>west", by=by)
    afltool.aggregate([north, west], root / "total.h5", allow_repeats=True)
    return root


@pytest.fixture(scope="module")
def page(trial):
    return afltool.report(trial, trial / "page.html").read_text()


def test_the_page_has_what_its_readers_need(road, trial, page):
    top1 = afltool.evaluate(road.head, road.test)["top1"]
    told = re.sub(r"<[^>]+>", " ", page)
    for words in (
        f"predicts about {100 * top1:.0f} right", "2 members, 400 rows, 4 classes",
        f"{top1:.4f} (", "at most", "Members", "By class", "By group",
        "What left the sites",
        afltool.info(trial / "total.h5")["digest"],
    ):  # fmt: skip
        assert words in told, words
    assert page.count("data:image/svg+xml") == 1, "no reliability: its scores are no probabilities"
    assert "calibration error" not in told


def test_heads_stand_beside_each_other_and_sites_too(road, tmp_path):
    """Figures are those of `evaluate`: of both heads on all rows, of the first on each site's."""
    weak = afltool.solve(road.total, tmp_path / "weak.h5", head_options={"ridge": 1e5})
    sites = afltool.split(road.test, tmp_path / "sites", test=0.3)
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
    assert "McNemar" in told


def test_names_are_escaped_and_nothing_is_asked_of_a_network(page):
    assert "&lt;b&gt;west" in page
    assert "<b>west" not in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "default-src 'none'" in page


def test_only_a_folder_with_counts_has_a_page(road, trial, tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copy(road.head, tmp_path / "a" / "head.h5")
    with pytest.raises(InputError, match="no counts of a solved head"):
        afltool.report(tmp_path / "a", tmp_path / "page.html")
    with pytest.raises(UsageError, match=r"\.html"):
        afltool.report(trial, tmp_path / "page.txt")
    with pytest.raises(UsageError, match="--stat is for the table of a study"):
        afltool.report(trial, tmp_path / "page.html", stat="mean")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, as Debian's package")
def test_a_browser_shows_it(trial, page, tmp_path):
    place = tmp_path / "page.html"
    for width in (1200, 500):
        place.write_text(page.replace("<head>", "<head>" + PROBE, 1))
        shown = browse(place, tmp_path / "profile", "--dump-dom", f"--window-size={width},900")
        found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)[1]))
        assert (found["wrong"], found["images"], found["wide"]) == ([], [True], True)


@pytest.mark.parametrize("of", ["run", "baseline"])
def test_a_run_has_a_page_of_its_figures_options_and_digests(of, done_study, tmp_path, cli):
    """The cells of a study are folders of runs and of baselines."""
    (cell,) = done_study.glob({"run": "cells/linear-*", "baseline": "cells/fedavg-*"}[of])
    out = tmp_path / "page.html"
    assert cli("report", cell, "-o", out).exit_code == 0
    summary, told = json.loads((cell / "summary.json").read_text()), out.read_text()
    for word in (
        f"top-1 {summary['top1']:.2%} of 200 test rows", summary["digests"]["total" if of == "run"
        else "head"], f"afltool status {cell}", "clients" if of == "run" else "batch-size",
    ):  # fmt: skip
        assert word in html.unescape(told), word
    assert told.count("data:image/svg+xml") == 1, "a confusion matrix, or two rounds"
    assert cli("report", cell, "-o", tmp_path / "two.html", "--rows", "head").exit_code == 2
    (cell / "summary.json").write_text("{}")
    assert cli("report", cell, "-o", tmp_path / "two.html").exit_code == 3
    assert not (tmp_path / "two.html").exists()


@pytest.fixture(scope="module")
def done_study(road, tmp_path_factory):
    at = tmp_path_factory.mktemp("small")
    given = f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
    methods = '[[method]]\nhead = "linear"\n[[method]]\nbaseline = "fedavg"\nrounds = 2\n'
    (at / "s.toml").write_text(given + methods)
    return afltool.study(at / "s.toml", at / "S")
