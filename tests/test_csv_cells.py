"""Texts from outside in tables: what a spreadsheet would run in CSV, and tags in Markdown."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import afltool
from afltool.errors import UsageError
from afltool.papers.crosstab import Crosstab, Entry, as_csv, as_latex, as_markdown
from afltool.plans.config import RunConfig

CLASSES = ("=1+1", "@SUM(A1)", "-1", "plain")  # a number is no formula
QUOTED = ("'=1+1", "'@SUM(A1)", "-1", "plain")


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
    """Every command that writes CSV, the output last; and how its option is spelled."""
    head, rows = road / "head.h5", road / "rows.h5"
    return {
        "predict": ["predict", head, rows, "-o"],
        "confusion": ["evaluate", head, rows, "--confusion"],
        "errors": ["evaluate", head, rows, "--errors"],
        "export": ["partition", road / "clients.h5", "--export"],
    }


@pytest.mark.parametrize("name", ["predict", "confusion", "errors", "export"])
def test_formulas_stay_as_they_are_unless_they_are_to_be_quoted(name, road, tmp_path, cli):
    command = each_csv(road)[name]
    assert cli(*command, tmp_path / "kept.csv").exit_code == 0
    assert cli(*command, tmp_path / "same.csv", "--formulas", "keep").exit_code == 0
    assert cli(*command, tmp_path / "quoted.csv", "--formulas", "quote").exit_code == 0
    kept, same, quoted = ((tmp_path / f"{n}.csv").read_text() for n in ("kept", "same", "quoted"))
    assert kept == same
    risky = {cell for cell in cells(kept) if cell.startswith(("=", "@", "+"))}
    assert risky
    assert cells(quoted) == {f"'{one}" if one in risky else one for one in cells(kept)}


def test_a_run_quotes_the_names_in_its_folder(road, tmp_path):
    given = {"train_features": road / "rows.h5", "test_features": road / "rows.h5", "clients": 3}
    run = afltool.run(RunConfig(**given, formulas="quote"), tmp_path / "run")
    first = (run / "06-confusion.csv").read_text().splitlines()[0]
    assert first == "true," + ",".join(QUOTED)
    afltool.run(RunConfig(**given, formulas="quote"), run)  # it knows its own file


def test_quoting_is_refused_where_no_csv_is_written(road, tmp_path, cli):
    head, rows = road / "head.h5", road / "rows.h5"
    for command in (
        ["predict", head, rows, "-o", tmp_path / "a.jsonl"],
        ["predict", head, rows, "--json"],
        ["evaluate", head, rows, "-o", tmp_path / "a.json"],
        ["partition", road / "clients.h5", "--export", tmp_path / "a.parquet"],
        ["table", road, "--format", "md"],
    ):
        done = cli(*command, "--formulas", "quote")
        assert done.exit_code == 2
        assert "--formulas quote is for CSV" in done.stderr


# ------------------------------------------------------------ tables of studies

BAD = "<script>alert(1)</script>|a\nb&c`[x](javascript:1)"


@pytest.fixture
def table():
    row, column = ("ours", BAD), ("top1",)
    entry = Entry(values=[0.5])
    return Crosstab(
        title=BAD, corner="top-1", rows=[row], columns=[column], row_names={row: BAD},
        column_names={column: "=cmd()"}, settings={column: "=cmd()"},
        entries={(row, column): entry}, stat="mean", notes=[BAD],
    )  # fmt: skip


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


def test_csv_of_a_study_quotes_when_asked(table):
    assert "=cmd()" in cells(as_csv(table))
    assert "'=cmd()" in cells(as_csv(table, "quote"))


@pytest.mark.parametrize("label", ["two\nlines", "a\x1b[31mb", "a\u2028b", "tab\there"])
def test_a_label_is_one_line(label, tmp_path, cli):
    study = tmp_path / "s.toml"
    study.write_text(f'data = "digits"\nbackbone = "resnet18"\nlabel = {json.dumps(label)}\n')
    done = cli("study", study, "-o", tmp_path / "S")
    assert done.exit_code == 2
    assert "a label is one line" in done.stderr
    assert not (tmp_path / "S").exists()


def test_an_unknown_way_is_refused(road):
    with pytest.raises(UsageError, match="--formulas is keep or quote"):
        afltool.predict(road / "head.h5", road / "rows.h5", formulas="drop")
