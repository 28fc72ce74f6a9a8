"""Tables of studies: statistics over seeds, holes, published and other figures, four formats."""

from __future__ import annotations

import csv
import io
import json
import shutil
from statistics import fmean, stdev

import pandas as pd
import pytest
from conftest import carried_out

import afltool
from afltool import table
from afltool.errors import InvalidDataError, UsageError
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.options import FIGURES, names_of, numbers_of
from afltool.lab.studies.published import TABLE, frame_of, options_in, papers, published
from afltool.lab.studies.result_table import FORMATS, crosstab
from afltool.lab.studies.results import axes_of, finished, results_of
from afltool.lab.studies.spec import find, read, shipped_names
from afltool.lab.studies.tables import beside, figures, frame

TEXT = """
train-features = "{train}"
test-features = "{test}"
clients = 6
seed = [0, 1, 2]

[study]
title = "Two heads"
rows = "head,layers"
columns = "alpha"
layers = "0,1"

[[split]]
alpha = [0.1, 1]

[[method]]
label = "AFL"
head = "linear"
[[method]]
label = "Deep | 100%"
head = "deepafl"
layers = 1
width = 8
each-round = true
train-accuracy = true
"""


@pytest.fixture(scope="module")
def done(road, tmp_path_factory):
    at = tmp_path_factory.mktemp("tables")
    (at / "two.toml").write_text(TEXT.format(train=road.train, test=road.test))
    return carried_out(read(at / "two.toml"), at / "S")


def rows(made):
    return [name for _, name in made.texts.index]


@pytest.fixture
def copied(done, tmp_path):
    return shutil.copytree(done, tmp_path / "S", copy_function=shutil.copy2)


def test_the_numbers_are_those_of_the_cells(done, road):
    made = table(done)
    wanted = [
        afltool.evaluate(StudyFolder(done).cell(cell.key) / "05-head-3.h5", road.test)["top1"]
        for cell in find(str(done)).cells
        if not cell.method and cell.label != "AFL" and cell.setting["alpha"] == 0.1
    ]
    row, column = "Deep | 100%, layers = 1", "alpha = 0.1"
    assert made.numbers.loc[("ours", row), column] == pytest.approx(fmean(wanted))
    shown = f"{100 * fmean(wanted):.2f} ± {100 * stdev(wanted):.2f}"
    assert made.texts.loc[("ours", row), column] == shown
    assert rows(made) == ["AFL", *(f"Deep | 100%, layers = {t}" for t in (0, 1))]


def test_a_deviation_that_is_zero_by_construction_is_called_so(done):
    (note,) = table(done).notes
    start = (
        "Equal totals for all partitions, by construction, since rows are summed whoever owns them"
    )
    assert note.startswith(f"{start}: AFL; Deep | 100%. Partitions add nothing to their deviation")
    assert "--weights-seed" in note


def entry(*values, hole=""):
    lines = [{"kind": "ours", "state": "done", "head": "a", "top1": value} for value in values]
    lines += [{"kind": "ours", "state": hole, "head": "a"}] if hole else []
    made = crosstab(frame_of(lines), ["head"], [], ["top1"], ["seed"])
    return *(made.records()[0][name] for name in ("value", "spread")), made.texts.iloc[0, 0]


def test_statistics_over_seeds():
    assert entry(0.4, 0.5, 0.6)[:2] == (pytest.approx(0.5), pytest.approx(0.1))
    assert entry(0.4)[:2] == (0.4, None), "one value has no deviation"


def test_methods_with_equal_totals_are_named_in_one_note(road, tmp_path):
    """By digests where each client was summed apart: there they could differ."""
    text = "clients = 4\nalpha = [0.1, 1]\nkeep-clients = true\n"
    text += 'head = ["linear", "discriminant"]\n'
    for name in ("train", "test"):
        text += f'{name}-features = "{getattr(road, name)}"\n'
    (tmp_path / "s.toml").write_text(text)
    notes = table(carried_out(read(tmp_path / "s.toml"), tmp_path / "S")).notes
    assert len(notes) == 1
    assert "by their digests: linear; discriminant. Partitions add nothing" in notes[0]


def test_deleting_a_cell_and_running_again_gives_the_same_table(copied):
    before = {name: form(table(copied)) for name, form in FORMATS.items()}
    wanted = find(str(copied))
    for cell in wanted.cells[::5]:
        shutil.rmtree(StudyFolder(copied).cell(cell.key))
    carried_out(wanted, copied)
    assert {name: form(table(copied)) for name, form in FORMATS.items()} == before


def test_holes_are_marked(copied):
    cells, folder = find(str(copied)).cells, StudyFolder(copied)
    first, second = [c for c in cells if c.label == "AFL"][:2]
    for cell in (first, second):
        shutil.rmtree(folder.cell(cell.key))
    folder.cell(second.key).mkdir()
    (folder.cell(second.key) / StudyFolder.FAILED).write_text("out of memory\n")
    made = table(copied)
    shown = made.texts.iloc[0].tolist()
    assert sum("(2 of 3)" in one for one in shown) == 1
    assert sum("(2 of 3, failed)" in one for one in shown) == 1
    assert any("1 of 12 cells failed" in n and "(out of memory)" in n for n in made.notes)
    assert "1 of 12 cells have not been run." in made.notes
    why = StudyFolder.FAILED  # a reason that differs in numbers alone is said once
    (folder.cell(second.key) / why).write_text("19.6 GB are free\n")
    folder.cell(first.key).mkdir()
    (folder.cell(first.key) / why).write_text("18.21 GB are free\n")
    assert any("(18.21 GB are free)" in n and "19.6" not in n for n in table(copied).notes)
    assert entry(hole="failed")[2] == "failed"
    assert entry(hole="missing")[2] == "–"


def test_a_cell_that_cannot_run_is_a_hole(road, tmp_path):
    """It is refused before the first cell; a folder of an older version may have one."""
    text = TEXT.replace("layers = 1", "layers = 1\nactivation = 'gelo'").replace("[0, 1, 2]", "0")
    (tmp_path / "two.toml").write_text(text.format(train=road.train, test=road.test))
    wanted, folder = read(tmp_path / "two.toml"), StudyFolder(tmp_path / "S")
    with pytest.raises(UsageError, match=r"^Deep \| 100%, .*: --activation is"):
        carried_out(wanted, folder.root)
    assert not folder.root.exists()
    folder.root.mkdir()
    wanted.keep(folder)
    made = table(folder.root)
    assert set(made.texts.to_numpy().ravel()) == {"–"}
    assert "0 of 4 cells done" in afltool.report(folder.root, tmp_path / "p.html").read_text()


def test_a_cell_never_averages_unequal_settings(done):
    with pytest.raises(UsageError, match=r"would average over alpha \(0\.1, 1\)"):
        table(done, columns="clients")
    made = table(done, columns="clients", where=("alpha=1",))
    assert made.headings == ["clients = 6"]
    with pytest.raises(UsageError, match=r"no cell has the option 'color'"):
        table(done, rows="color")
    with pytest.raises(UsageError, match=r"no cell fits"):
        table(done, where=("alpha=7",))
    assert rows(table(done, rows="label", where=("label=AFL",))) == ["AFL"]
    assert rows(table(done, rows="baseline,layers")) == rows(table(done))


def test_figures_stand_side_by_side_and_are_those_of_the_summaries(done, road):
    value = "exchanges,upload_bytes,train_top1,seconds"
    made = table(done, value=value, where=("alpha=1",), columns="")
    assert made.headings == [FIGURES[name].label for name in value.split(",")]
    assert rows(made) == ["AFL", "Deep | 100%, layers = 0", "Deep | 100%, layers = 1"]
    assert made.numbers.iloc[:, 0].tolist() == [1, 1, 3], "rounds up to the layer"
    cell = next(c for c in find(str(done)).cells if c.label != "AFL" and c.setting["alpha"] == 1)
    sent = finished(StudyFolder(done), cell)["upload_bytes"]
    assert made.numbers.iloc[-1, 1] == sent
    head = StudyFolder(done).cell(cell.key) / "05-head-3.h5"
    wanted = afltool.evaluate(head, road.train)["top1"]
    assert finished(StudyFolder(done), cell)["train_top1"] == wanted
    assert any("counts in the cell that came first" in note for note in made.notes)
    assert not any("Seconds" in note for note in table(done).notes)


def test_the_best_round_is_beside_the_last(done):
    """Of a rival on the test rows, as papers have it; of a deep head up to the layer."""
    of = results_of(done)
    deep = [one for one in frame(of, (0, 1)).to_dict("records") if one["layers"] in (0, 1)]
    assert len(deep) == 12
    for first, last in zip(deep[::2], deep[1::2], strict=True):
        assert first["best"] == first["top1"]
        assert last["best"] == max(first["top1"], last["top1"])
    assert "best round" in str(table(done, value="top1,best"))
    rounds = [{"phase": "round-1", "top1": 0.7}, {"phase": "round-2", "top1": 0.6, "top1_max": 0.9}]
    found = figures({"top1": 0.6, "rounds": rounds, "seconds": 1.0})
    assert (found["top1"], found["best"], found["top1_max"]) == (0.6, 0.7, 0.9)
    alone = {"phase": "round-1", "upload_bytes": 0, "download_bytes": 0}
    of_rival = {"seconds": 1.0, "stages": [], "upload_bytes": 80, "rounds": [alone, alone]}
    assert figures(of_rival)["exchanges"] == 0, "who trains alone has no communication"
    assert figures(of_rival)["file_bytes"] == 80, "float32 numbers"
    assert figures({**of_rival, "rounds": [alone, {**alone, "upload_bytes": 8}]})["exchanges"] == 1


# ------------------------------------------------------------ formats


def test_each_form_has_the_table(done, tmp_path, cli):
    """Numbers as the program measures them, with their units; texts are escaped."""
    made = table(done, value="top1,upload_bytes,seconds")
    lines = [one for one in FORMATS["md"](made).splitlines() if one.startswith("|")]
    assert len({len(one) for one in lines}) == 1
    assert "Deep \\| 100%" in lines[-1]
    text = FORMATS["latex"](made)
    assert r"Deep | 100\%" in text
    assert r" $\pm$ " in text
    assert text.count(r"\\") == 4
    body = text.split("% ")[0]
    assert body.count("{") == body.count("}")
    lines = FORMATS["csv"](made).splitlines()
    frame = pd.read_csv(io.StringIO("\n".join(lines)))
    units = dict(zip(frame["figure"], frame["unit"], strict=True))
    assert units == {"top1": "fraction", "upload_bytes": "bytes", "seconds": "seconds"}
    assert frame["value"][frame["unit"] == "fraction"].between(0, 1).all()
    assert set(frame["column"]) == {"alpha = 0.1", "alpha = 1"}
    told = [one[name] for one in csv.DictReader(lines) for name in ("value", "spread")]
    digits = [number.partition("e")[0].strip("0.") for number in told]  # 1.5e-05 is small
    assert max(map(len, digits)) <= 13, "twelve digits and the point"
    place = tmp_path / "t.csv"
    assert cli("table", done, "--format", "csv", "-o", place).stdout == f"{place}\n"
    frame = pd.read_csv(place)
    assert frame["count"].tolist() == [3] * 6
    found = json.loads(cli("table", done, "--format", "json").stdout)["entries"]
    assert [one["value"] for one in found] == pytest.approx(frame["value"].tolist())
    place = tmp_path / "t.parquet"
    assert cli("table", done, "-o", place).stdout == f"{place}\n"
    assert cli("table", done, "-o", place).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(place)[frame.columns], frame, check_dtype=False)
    assert cli("table", done, "-o", place, "--format", "csv").exit_code == 2
    assert cli("table", done, "--value", "exchanges", "-o", place).exit_code == 2, "another table"
    assert cli("table", done, "--format", "html").exit_code == 2
    assert cli("table", done).stdout.startswith("**Two heads** (mean ± standard deviation over")


def test_a_figure_that_no_cell_has_is_named(done, tmp_path, cli):
    """Of few clients no file is weighed; a page then shows the bound."""
    made = cli("table", done, "--value", "file_bytes")
    assert made.exit_code == 2
    assert "no cell has the figure file_bytes;" in made.stderr
    beside = cli("table", done, "--value", "top1,file_bytes")
    assert beside.exit_code == 0
    assert "No cell has the figure file_bytes." in beside.stdout
    weighed = shutil.copytree(done, tmp_path / "weighed")
    for place in weighed.glob("cells/*/summary.json"):
        found = json.loads(place.read_text())
        place.write_text(json.dumps({**found, "file_bytes": 1000}))
    for folder, label in (
        (done, "MB sent by a client, at most"),
        (weighed, "sent by a client, as files"),
    ):
        page = tmp_path / "page.html"
        assert cli("report", folder, "-o", page, "--overwrite").exit_code == 0
        assert label in page.read_text()


# ------------------------------------------------------------ others


def test_every_published_table_can_be_read():
    assert sum(len(published(name)) for name in papers()) == len(pd.read_csv(TABLE)) == 1897
    first = published("afl-1").iloc[0]
    known = {"data": "cifar10", "alpha": 0.1, "scheme": "dirichlet", "head": "FedAvg"}
    assert known.items() <= {**first}.items()
    assert (first["top1"], first["spread"]) == (0.6402, pytest.approx(0.0018))
    with pytest.raises(UsageError, match=r"no published figures 'afl-9'; known are afl-1, "):
        published("afl-9")
    kinds = {name.split("-")[0]: set() for name in papers()}
    for name in papers():
        found = published(name).reindex(columns=["spread", "spread_of"])
        kinds[name.split("-")[0]] |= {*found[found["spread"].notna()]["spread_of"]}
        found = published(name)
        known = [one for one in FIGURES if one in found]
        made = crosstab(found, options_in(found), [], known, [])
        assert made.entries["count"].max() == 1, "one published figure a cell"
    assert kinds == {
        "afl": {"standard deviation"}, "deepafl": {"standard error"},
        "safle": {"standard deviation"},
    }  # fmt: skip


def test_settings_of_the_papers_are_our_options_and_those_of_the_shipped_studies():
    for name, axes in (
        ("deepafl-1", {"head": "DeepAFL", "layers": 5}),
        ("deepafl-6", {"feature_width": 1024.0}),
        ("deepafl-28", {"participation": 0.7, "participation_kind": "consistent", "layers": 5}),
        ("deepafl-29", {"label_noise": 0.5}),
        ("afl-3", {"clients": 500, "gamma": 10.0, "head": "AFL, with RI removal"}),
        ("safle-2", {"bucketing": "overlap", "buckets": 8}),
        ("safle-3", {"backbone": "vit_b_16"}),
    ):
        lines = published(name).to_dict("records")
        assert any(axes.items() <= one.items() for one in lines), name
    for wanted in (find(name).changed({}, 1) for name in shipped_names()):
        theirs = wanted.shown.published
        if theirs:  # each of the published figures has a column
            layers, every = numbers_of(wanted.shown.layers), []
            for cell in wanted.cells:
                axes = axes_of(cell)
                every += [axes, *({**axes, "layers": t} for t in layers)]
            there = beside(theirs, frame_of(every), names_of(wanted.shown.columns))
            assert there.index.tolist() == published(theirs).index.tolist(), wanted.name


OURS = frame_of([
    {"kind": "ours", "state": "done", "head": "AFL", "alpha": 0.1, "data": "cifar10", "top1": 0.7}
])  # fmt: skip


def test_published_rows_are_marked_and_come_last():
    theirs = beside("afl-1", OURS, ["alpha"])
    made = crosstab(pd.concat([OURS, theirs]), ["head"], ["alpha"], ["top1"], ["seed"])
    assert rows(made)[:2] == ["AFL", "FedAvg (published)"]
    assert made.texts.iloc[1].tolist() == ["64.02 ± 0.18"]
    of_files = OURS.drop(columns="data")
    assert beside("afl-1", of_files, ["alpha"]).empty
    assert beside("afl-1:cifar10", of_files, ["alpha"]).equals(theirs)


def test_published_rows_have_options_that_given_features_do_not_tell(done):
    asked = {"rows": "head,backbone", "columns": "", "where": ("alpha=1", "head=AFL")}
    with pytest.raises(UsageError, match="no cell has the option 'backbone'"):
        table(done, **asked)
    made = table(done, **asked, published="safle-3:cifar10")
    assert {"AFL", "AFL, vit_b_16 (published)", "SAFLe, resnet18 (published)"} <= {*rows(made)}


def test_results_of_another_method_stand_beside(done, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("alpha,seed,top1\n0.1,0,0.5\n0.1,1,0.7\n1,0,0.25\n")
    made = table(done, also=(f"Mine={path}",))
    assert made.texts.loc[("also", "Mine")].tolist() == ["60.00 ± 14.14", "25.00"]
    path.write_text("alpha,top1\n0.1,50\n")
    with pytest.raises(InvalidDataError, match=r"line 2: top1 is a fraction.*divide percentages"):
        table(done, also=(f"Mine={path}",))
    path.write_text("alpha,accuracy\n0.1,50\n")
    with pytest.raises(InvalidDataError, match=r"expected a column of figures"):
        table(done, also=(f"Mine={path}",))


@pytest.mark.parametrize(("paper", "apart"), [
    ("deepafl-24", {"FedAWA": (58.94, 50.48), "FedLPA": (40.04, 22.55)}),
    ("deepafl-30", {"DeepAFL": (64.62, 65.11)}),
])  # fmt: skip
def test_two_published_figures_are_two_rows_and_never_a_mean(paper, apart):
    """The paper's table has both; their mean is in no paper."""
    found = published(paper)
    layers = found.reindex(columns=["layers"])["layers"]
    found = found[(found["data"] == "cifar100") & (layers.isna() | (layers == 5))]
    made = crosstab(found, ["head"], ["alpha", "layers"], ["top1"], [])
    for head, values in apart.items():
        named = [n for n in rows(made) if n.split(",")[0].removesuffix(" (published)") == head]
        assert len(named) == 2
        of_rows = made.entries[made.entries["row"].isin(named)]["value"].dropna()
        assert sorted(of_rows) == pytest.approx(sorted(v / 100 for v in values))


def test_published_figures_of_one_cell_are_refused():
    """Two data sets of a paper, of which the table tells nothing: no cell has their mean."""
    found = published("afl-A.2")
    one = {**found[found["head"] == "AFL"].iloc[0]}
    two = frame_of([{**one, "data": data} for data in ("a", "b")])
    with pytest.raises(UsageError, match=r"would average over data \(a, b\): add it to --rows"):
        crosstab(two, ["head"], [], ["top1"], [])
    assert len(crosstab(two, ["head"], ["data"], ["top1"], []).entries) == 2
    again = frame_of([one, {**one, "top1": 0.5}])  # all options are the same
    with pytest.raises(UsageError, match="would average 2 published figures of AFL"):
        crosstab(again, ["head"], [], ["top1"], [])


@pytest.mark.parametrize(("paper", "behind"), [
    ("afl-1", "standard deviations"), ("deepafl-2", "standard errors"), ("safle-3", ""),
])  # fmt: skip
def test_the_header_says_what_a_paper_has_behind_its_plus_and_minus(paper, behind):
    """In every format."""
    both = pd.concat([OURS, beside(f"{paper}:cifar10", OURS, [])])
    asked = both, ["head", "layers", "backbone"], ["alpha", "shards_per_client"], ["top1"]
    made = crosstab(*asked, ["seed"], "T")
    header = "mean ± standard deviation over seeds" + f"; published ± are {behind}" * bool(behind)
    assert FORMATS["md"](made).startswith(f"**T** ({header})\n")
    assert f"\n% {header}\n" in FORMATS["latex"](made)
    assert json.loads(FORMATS["json"](made))["shows"] == header
