"""Texts from outside in tables: what a spreadsheet would run in CSV, and tags in Markdown."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import afltool
from afltool.papers.crosstab import as_csv, as_latex, as_markdown, crosstab
from afltool.papers.published import frame_of

CLASSES = ("=1+1", "@SUM(A1)", "-1", "plain")


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    """Features, a partition and a head whose names are formulas."""
    at = tmp_path_factory.mktemp("formulas")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 80)
    x = rng.normal(size=(80, 6)) + 1.5 * np.random.default_rng(7).normal(size=(4, 6))[y]
    ids = np.array([f"+row/{i:02d}" for i in range(80)])
    np.savez(at / "rows.npz", x=x, y=np.array(CLASSES)[y], row_ids=ids)
    (at / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    rows = afltool.import_embeddings(at / "rows.npz", at / "rows.h5", classes=at / "classes.txt")
    clients = afltool.partition(rows, at / "clients.h5", scheme="iid", clients=3)
    total = afltool.local_stats(rows, "linear", at / "total.h5", partition=clients, sum=True)
    afltool.solve(total, at / "head.h5")
    return at


def cells(text):
    return {cell for row in csv.reader(io.StringIO(text)) for cell in row}


def each_csv(road):
    """Every command that writes CSV, the output last."""
    head, rows = road / "head.h5", road / "rows.h5"
    drawn = ["partition", rows, "--scheme", "iid", "--clients", 3]
    return {
        "predict": ["predict", head, rows, "-o"],
        "confusion": ["evaluate", head, rows, "--confusion"],
        "errors": ["evaluate", head, rows, "--errors"],
        "export": [*drawn, "-o", road / "clients.h5", "--export"],
    }


@pytest.mark.parametrize("name", ["predict", "confusion", "errors", "export"])
def test_csv_has_texts_as_they_are(name, road, tmp_path, cli):
    assert cli(*each_csv(road)[name], tmp_path / "a.csv").exit_code == 0
    assert any(one.startswith(("=", "@", "+")) for one in cells((tmp_path / "a.csv").read_text()))


# ------------------------------------------------------------ tables of studies

BAD = "<script>alert(1)</script>|a\nb&c`[x](javascript:1)"


@pytest.fixture
def table():
    line = {"head": BAD, "data": "=cmd()", "top1": 0.5, "kind": "ours", "state": "done"}
    made = crosstab(frame_of([line]), ["head"], ["data"], ["top1"], "mean", (), BAD)
    made.notes.append(BAD)
    return made


def test_markdown_says_a_text_and_does_nothing_else(table):
    text = as_markdown(table)
    assert len(text.splitlines()) == 7  # title, table of three lines, note, and empty lines
    assert r"\<script\>alert(1)\</script\>\|a\\nb\&c\`\[x\](javascript:1)" in text
    assert "<script" not in text.replace("\\<script", "")


def test_latex_has_one_line_for_a_note_and_for_a_row(table):
    lines = as_latex(table).splitlines()
    assert [line for line in lines if "script" in line and line.startswith("%")] == [lines[-1]]
    assert lines[-2] == "% mean over seeds"
    assert len(lines) == 9


def test_csv_of_a_study_has_texts_as_they_are(table):
    assert "=cmd()" in cells(as_csv(table))


@pytest.mark.parametrize("label", ["two\nlines", "a\x1b[31mb", "a\u2028b", "tab\there"])
def test_a_label_is_one_line(label, tmp_path, cli):
    study = tmp_path / "s.toml"
    study.write_text(f'data = "digits"\nbackbone = "resnet18"\nlabel = {json.dumps(label)}\n')
    done = cli("study", study, "-o", tmp_path / "S")
    assert done.exit_code == 2
    assert "a label is one line" in done.stderr
    assert not (tmp_path / "S").exists()
