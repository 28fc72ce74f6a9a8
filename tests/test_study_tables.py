"""Tables of studies: statistics over seeds, holes, published and other figures, four formats."""

from __future__ import annotations

import csv
import io
import json
import shutil
from statistics import fmean, stdev

import pandas as pd
import pytest
from conftest import GIVEN, STUDY, carried_out

import afltool
from afltool import table
from afltool.errors import InvalidDataError, UsageError
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.options import FIGURES, parse_names, parse_numbers
from afltool.lab.studies.published import TABLE, load_published, make_frame, options_in, papers
from afltool.lab.studies.result_table import FORMATS, crosstab
from afltool.lab.studies.results import get_axes, load_current, load_results
from afltool.lab.studies.spec import find, list_shipped, read_study
from afltool.lab.studies.tables import add_published, figures, frame

AFL, DEEP = "AFL <i>", "_Deep | 100%, $x$"


def numbers(made):
    """The middles of the cells of ours, by row and heading."""
    ours = made.entries[made.entries["kind"] == "ours"]
    return ours.pivot(index="row", columns="heading", values="value").reindex(
        index=dict.fromkeys(ours["row"]), columns=made.headings
    )


def rows(made):
    return [name for _, name in made.texts.index]


def test_the_numbers_are_those_of_the_cells(done_study, road):
    made = table(done_study)
    wanted = [
        afltool.evaluate(StudyFolder(done_study).cell(cell.key) / "05-head-3.h5", road.test)["top1"]
        for cell in find(str(done_study)).cells
        if cell.label == DEEP and cell.setting["alpha"] == 0.1
    ]
    row, column = f"{DEEP}, layers = 1", "alpha = 0.1"
    assert numbers(made).loc[row, column] == pytest.approx(fmean(wanted))
    shown = f"{100 * fmean(wanted):.2f} ± {100 * stdev(wanted):.2f}"
    assert made.texts.loc[("ours", row), column] == shown
    assert rows(made) == [AFL, *(f"{DEEP}, layers = {t}" for t in (0, 1)), "fedavg"]


def test_methods_with_equal_totals_are_named_in_one_note(done_study, described, tmp_path):
    """By digests where each client was summed apart: there they could differ."""
    start = (
        "Equal totals for all partitions, by construction, since rows are summed whoever owns them"
    )
    (note,) = table(done_study).notes
    assert note.startswith(f"{start}: {AFL}; {DEEP}. Partitions add nothing to their deviation")
    assert "--weights-seed" in note
    apart = GIVEN + "alpha = [0.1, 1]\nkeep-clients = true\n"
    wanted = read_study(described(apart + 'head = ["linear", "discriminant"]\n'))
    (note,) = table(carried_out(wanted, tmp_path / "S")).notes
    assert "by their digests: linear; discriminant. Partitions add nothing" in note


def entry(*values, hole=""):
    lines = [{"kind": "ours", "state": "done", "head": "a", "top1": value} for value in values]
    lines += [{"kind": "ours", "state": hole, "head": "a"}] if hole else []
    made = crosstab(make_frame(lines), ["head"], [], ["top1"], ["seed"])
    return *(made.records()[0][name] for name in ("value", "spread")), made.texts.iloc[0, 0]


def test_statistics_over_seeds():
    assert entry(0.4, 0.5, 0.6)[:2] == (pytest.approx(0.5), pytest.approx(0.1))
    assert entry(0.4)[:2] == (0.4, None), "one value has no deviation"


def test_deleting_a_cell_and_running_again_gives_the_same_table(copied_study):
    before = table(copied_study)
    wanted = find(str(copied_study))
    for cell in wanted.cells[::5]:
        shutil.rmtree(StudyFolder(copied_study).cell(cell.key))
    carried_out(wanted, copied_study)
    after = table(copied_study)
    assert (str(after), after.records()) == (str(before), before.records())


def test_holes_are_marked(copied_study):
    cells, folder = find(str(copied_study)).cells, StudyFolder(copied_study)
    first, second, *_ = (folder.cell(c.key) for c in cells if c.label == AFL)
    for cell in (first, second):
        shutil.rmtree(cell)
    second.mkdir()
    (second / StudyFolder.FAILED).write_text("out of memory\n")
    made = table(copied_study)
    shown = made.texts.iloc[0].tolist()
    assert sum("(1 of 2)" in one for one in shown) == 1
    assert sum("(1 of 2, failed)" in one for one in shown) == 1
    assert any("1 of 12 cells failed" in n and "(out of memory)" in n for n in made.notes)
    assert "1 of 12 cells have not been run." in made.notes
    # A reason that differs in numbers alone is said once.
    (second / StudyFolder.FAILED).write_text("19.6 GB are free\n")
    first.mkdir()
    (first / StudyFolder.FAILED).write_text("18.21 GB are free\n")
    assert any("(18.21 GB are free)" in n and "19.6" not in n for n in table(copied_study).notes)
    assert entry(hole="failed")[2] == "failed"
    assert entry(hole="missing")[2] == "–"


def test_a_cell_that_cannot_run_is_a_hole(described, tmp_path):
    """It is refused before the first cell; a folder of an older version may have one."""
    wanted = read_study(described(STUDY.replace("width = 8", "activation = 'gelo'")))
    folder = StudyFolder(tmp_path / "S")
    with pytest.raises(UsageError, match=r"^_Deep \| 100%, .*: --activation is"):
        carried_out(wanted, folder.root)
    assert not folder.root.exists()
    folder.root.mkdir()
    wanted.keep(folder)
    made = table(folder.root)
    assert set(made.texts.to_numpy().ravel()) == {"–"}
    assert "0 of 12 cells done" in afltool.report(folder.root, tmp_path / "p.html").read_text()


def test_a_cell_never_averages_unequal_settings(done_study):
    made = table(done_study, columns="clients", where=("alpha=1",))
    assert made.headings == ["clients = 6"]
    for asked, words in (
        ({"columns": "clients"}, r"would average over alpha \(0\.1, 1\)"),
        ({"rows": "color"}, "no cell has the option 'color'"),
        ({"where": ("alpha=7",)}, "no cell fits"),
    ):
        with pytest.raises(UsageError, match=words):
            table(done_study, **asked)
    assert rows(table(done_study, rows="label", where=(f"label={AFL}",))) == [AFL]
    assert rows(table(done_study, rows="baseline,layers")) == rows(table(done_study))


def test_figures_stand_side_by_side_and_are_those_of_the_summaries(done_study, road):
    value = "exchanges,upload_bytes,train_top1,seconds"
    made = table(done_study, value=value, where=("alpha=1",), columns="")
    assert made.headings == [FIGURES[name].label for name in value.split(",")]
    assert numbers(made).iloc[:, 0].tolist() == [1, 1, 3, 2], "rounds up to the layer"
    cells = find(str(done_study)).cells
    cell = next(c for c in cells if c.label == DEEP and c.setting["alpha"] == 1)
    found = load_current(StudyFolder(done_study), cell)
    assert numbers(made).iloc[2, 1] == found["upload_bytes"]
    head = StudyFolder(done_study).cell(cell.key) / "05-head-3.h5"
    assert found["train_top1"] == afltool.evaluate(head, road.train)["top1"]
    assert any("counts in the cell that came first" in note for note in made.notes)
    assert not any("Seconds" in note for note in table(done_study).notes)


def test_the_best_round_is_beside_the_last(done_study):
    """Of a rival on the test rows, as papers have it; of a deep head up to the layer."""
    of = load_results(done_study)
    deep = [one for one in frame(of, (0, 1)).to_dict("records") if one["layers"] in (0, 1)]
    assert len(deep) == 8
    for first, last in zip(deep[::2], deep[1::2], strict=True):
        assert first["best"] == first["top1"]
        assert last["best"] == max(first["top1"], last["top1"])
    assert "best round" in str(table(done_study, value="top1,best"))
    rounds = [{"phase": "round-1", "top1": 0.7}, {"phase": "round-2", "top1": 0.6, "top1_max": 0.9}]
    found = figures({"top1": 0.6, "rounds": rounds, "seconds": 1.0})
    assert (found["top1"], found["best"], found["top1_max"]) == (0.6, 0.7, 0.9)
    alone = {"phase": "round-1", "upload_bytes": 0, "download_bytes": 0}
    of_rival = {"seconds": 1.0, "stages": [], "upload_bytes": 80, "rounds": [alone, alone]}
    assert figures(of_rival)["exchanges"] == 0, "who trains alone has no communication"
    assert figures(of_rival)["file_bytes"] == 80, "float32 numbers"
    assert figures({**of_rival, "rounds": [alone, {**alone, "upload_bytes": 8}]})["exchanges"] == 1


# ------------------------------------------------------------ formats


def test_each_form_has_the_table(done_study, tmp_path, cli):
    """Numbers as the program measures them, with their units; texts are escaped."""
    made = table(done_study, value="top1,upload_bytes,seconds")
    lines = [one for one in FORMATS["md"](made).splitlines() if one.startswith("|")]
    assert len({len(one) for one in lines}) == 1
    assert "Deep \\| 100%" in lines[-2]
    text = FORMATS["latex"](made)
    assert r"Deep | 100\%, \$x\$" in text
    assert r" $\pm$ " in text
    assert text.count(r"\\") == 5
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
    assert cli("table", done_study, "--format", "csv", "-o", place).stdout == f"{place}\n"
    frame = pd.read_csv(place)
    assert frame["count"].tolist() == [2] * 8
    found = json.loads(cli("table", done_study, "--format", "json").stdout)["entries"]
    assert [one["value"] for one in found] == pytest.approx(frame["value"].tolist())
    place = tmp_path / "t.parquet"
    for code, more in (
        (0, ["-o", place]), (0, ["-o", place]), (2, ["-o", place, "--format", "csv"]),
        (2, ["-o", place, "--value", "exchanges"]), (2, ["--format", "html"]),
    ):  # fmt: skip
        assert cli("table", done_study, *more).exit_code == code, more
    pd.testing.assert_frame_equal(pd.read_parquet(place)[frame.columns], frame, check_dtype=False)
    shown = cli("table", done_study).stdout
    assert shown.startswith("**A \\<b\\>study\\</b\\> \\& more** (mean ± standard deviation over")


def test_a_figure_that_no_cell_has_is_named(copied_study, tmp_path, cli):
    """Of few clients no file is weighed; a page then shows the bound."""
    given = ["--where", f"head={AFL}", "--value"]
    made = cli("table", copied_study, *given, "file_bytes")
    assert made.exit_code == 2
    assert "no cell has the figure file_bytes;" in made.stderr
    shown = cli("table", copied_study, *given, "top1,file_bytes").stdout
    assert "No cell has the figure file_bytes." in shown
    for place in copied_study.glob("cells/*/summary.json"):
        found = json.loads(place.read_text())
        place.write_text(json.dumps({**found, "file_bytes": 1000}))
    page = afltool.report(copied_study, tmp_path / "page.html", where=("alpha=1",)).read_text()
    assert "MB sent by a client, as files" in page


# ------------------------------------------------------------ others


def test_every_published_table_can_be_read():
    assert sum(len(load_published(name)) for name in papers()) == len(pd.read_csv(TABLE)) == 1897
    first = load_published("afl-1").iloc[0]
    known = {"data": "cifar10", "alpha": 0.1, "scheme": "dirichlet", "head": "FedAvg"}
    assert known.items() <= {**first}.items()
    assert (first["top1"], first["spread"]) == (0.6402, pytest.approx(0.0018))
    with pytest.raises(UsageError, match=r"no published figures 'afl-9'; known are afl-1, "):
        load_published("afl-9")
    kinds = {name.split("-")[0]: set() for name in papers()}
    for name in papers():
        found = load_published(name).reindex(columns=["spread", "spread_of"])
        kinds[name.split("-")[0]] |= {*found[found["spread"].notna()]["spread_of"]}
        found = load_published(name)
        known = [one for one in FIGURES if one in found]
        made = crosstab(found, options_in(found), [], known, [])
        assert made.entries["count"].max() == 1, "one published figure a cell"
    assert kinds == {
        "afl": {"standard deviation"}, "deepafl": {"standard error"},
        "safle": {"standard deviation"},
    }  # fmt: skip


def test_settings_of_the_papers_are_our_options():
    for name, axes in (
        ("deepafl-1", {"head": "DeepAFL", "layers": 5}),
        ("deepafl-6", {"feature_width": 1024.0}),
        ("deepafl-28", {"participation": 0.7, "participation_kind": "consistent", "layers": 5}),
        ("deepafl-29", {"label_noise": 0.5}),
        ("afl-3", {"clients": 500, "gamma": 10.0, "head": "AFL, with RI removal"}),
        ("safle-2", {"bucketing": "overlap", "buckets": 8}),
        ("safle-3", {"backbone": "vit_b_16"}),
    ):
        lines = load_published(name).to_dict("records")
        assert any(axes.items() <= one.items() for one in lines), name


@pytest.mark.slow
def test_every_published_figure_has_a_column_in_its_shipped_study():
    for wanted in (find(name).with_options({}, 1) for name in list_shipped()):
        theirs = wanted.shown.published
        if theirs:  # each of the published figures has a column
            layers, every = parse_numbers(wanted.shown.layers), []
            for cell in wanted.cells:
                axes = get_axes(cell)
                every += [axes, *({**axes, "layers": t} for t in layers)]
            there = add_published(theirs, make_frame(every), parse_names(wanted.shown.columns))
            assert there.index.tolist() == load_published(theirs).index.tolist(), wanted.name


OURS = make_frame([
    {"kind": "ours", "state": "done", "head": "AFL", "alpha": 0.1, "data": "cifar10", "top1": 0.7}
])  # fmt: skip


def test_published_rows_are_marked_and_come_last():
    theirs = add_published("afl-1", OURS, ["alpha"])
    made = crosstab(pd.concat([OURS, theirs]), ["head"], ["alpha"], ["top1"], ["seed"])
    assert rows(made)[:2] == ["AFL", "FedAvg (published)"]
    assert made.texts.iloc[1].tolist() == ["64.02 ± 0.18"]
    of_files = OURS.drop(columns="data")
    assert add_published("afl-1", of_files, ["alpha"]).empty
    assert add_published("afl-1:cifar10", of_files, ["alpha"]).equals(theirs)


def test_published_rows_have_options_that_given_features_do_not_tell(done_study):
    asked = {"rows": "head,backbone", "columns": "", "where": ("alpha=1", f"head={AFL}")}
    with pytest.raises(UsageError, match="no cell has the option 'backbone'"):
        table(done_study, **asked)
    made = table(done_study, **asked, published="safle-3:cifar10")
    assert {AFL, "AFL, vit_b_16 (published)", "SAFLe, resnet18 (published)"} <= {*rows(made)}


def test_results_of_another_method_stand_beside(done_study, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("alpha,seed,top1\n0.1,0,0.5\n0.1,1,0.7\n1,0,0.25\n")
    made = table(done_study, also=(f"Mine={path}",))
    assert made.texts.loc[("also", "Mine")].tolist() == ["60.00 ± 14.14", "25.00"]
    for text, words in (
        ("alpha,top1\n0.1,50\n", r"line 2: top1 is a fraction.*divide percentages"),
        ("alpha,accuracy\n0.1,50\n", "expected a column of figures"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidDataError, match=words):
            table(done_study, also=(f"Mine={path}",))


@pytest.mark.parametrize(("paper", "apart"), [
    ("deepafl-24", {"FedAWA": (58.94, 50.48), "FedLPA": (40.04, 22.55)}),
    ("deepafl-30", {"DeepAFL": (64.62, 65.11)}),
])  # fmt: skip
def test_two_published_figures_are_two_rows_and_never_a_mean(paper, apart):
    """The paper's table has both; their mean is in no paper."""
    found = load_published(paper)
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
    found = load_published("afl-A.2")
    one = {**found[found["head"] == "AFL"].iloc[0]}
    two = make_frame([{**one, "data": data} for data in ("a", "b")])
    with pytest.raises(UsageError, match=r"would average over data \(a, b\): add it to --rows"):
        crosstab(two, ["head"], [], ["top1"], [])
    assert len(crosstab(two, ["head"], ["data"], ["top1"], []).entries) == 2
    again = make_frame([one, {**one, "top1": 0.5}])  # all options are the same
    with pytest.raises(UsageError, match="would average 2 published figures of AFL"):
        crosstab(again, ["head"], [], ["top1"], [])


@pytest.mark.parametrize(("paper", "behind"), [
    ("afl-1", "standard deviations"), ("deepafl-2", "standard errors"), ("safle-3", ""),
])  # fmt: skip
def test_the_header_says_what_a_paper_has_behind_its_plus_and_minus(paper, behind):
    """In every format."""
    both = pd.concat([OURS, add_published(f"{paper}:cifar10", OURS, [])])
    asked = both, ["head", "layers", "backbone"], ["alpha", "shards_per_client"], ["top1"]
    made = crosstab(*asked, ["seed"], "T")
    header = "mean ± standard deviation over seeds" + f"; published ± are {behind}" * bool(behind)
    assert FORMATS["md"](made).startswith(f"**T** ({header})\n")
    assert f"\n% {header}\n" in FORMATS["latex"](made)
    assert json.loads(FORMATS["json"](made))["shows"] == header
