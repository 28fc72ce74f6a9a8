"""Studies: grids of runs and baselines, each cell the run that the printed command makes alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import GIVEN, calls, carried_out, forget_stop

import afltool
from afltool import progress
from afltool.errors import AflError, IncompleteError, OutputExistsError, StoppedError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head
from afltool.files.locks import work_marker
from afltool.lab.studies import grid, worker
from afltool.lab.studies.cells import StudyFolder, make_cell
from afltool.lab.studies.execution import list_studies, status
from afltool.lab.studies.results import get_axes, group_failures, load_current, names_of_cells
from afltool.lab.studies.spec import find, list_shipped, read_study
from afltool.runs.config import RunConfig
from afltool.runs.folder import RunFolder

SUMS = "_Gathering.gather"  # called whenever sums are computed from rows
GRID = f"""{GIVEN}
seed = 1

[study]
title = "A small study"
rows = "head"
columns = "alpha"

[[split]]
alpha = 0.1
[[split]]
scheme = "iid"

[[method]]
head = "linear"
ridge = 1
[[method]]
label = "FedAvg, 2 rounds"
baseline = "fedavg"
rounds = 2
threads = 1
"""


@pytest.fixture(scope="module")
def wanted(done_study):
    return find(str(done_study))


IMAGES = "# images\n"


# ------------------------------------------------------------ grids


def test_lists_are_axes_and_blocks_are_unions():
    tree = {"seed": [0, 1], "block": [{"a": [1, 2]}, {"b": 3, "inner": [{"c": 4}, {"c": 5}]}]}
    found = list(grid.settings(tree))
    assert grid.size(tree) == len(found) == 8
    assert found[:4] == [
        {"seed": 0, "a": 1}, {"seed": 0, "a": 2}, {"seed": 0, "b": 3, "c": 4},
        {"seed": 0, "b": 3, "c": 5},
    ]  # fmt: skip
    assert found[4:] == [{**one, "seed": 1} for one in found[:4]]
    assert grid.size({f"option{i}": list(range(1000)) for i in range(6)}) == 10**18
    several = {"classes"}  # a list that is one value is no axis
    assert grid.size({"classes": ["a", "b"]}, several) == 1
    assert list(grid.settings({"classes": [["a"], ["b"]]}, several)) == [
        {"classes": ["a"]}, {"classes": ["b"]},
    ]  # fmt: skip


def test_options_of_the_command_line_stand_where_the_study_has_them(described):
    wanted = read_study(described(GRID))
    fewer = wanted.with_options({"alpha": 0.5, "clients": 3}, seeds=1)
    assert [c.setting.get("alpha") for c in fewer.cells] == [0.5, 0.5, None, None]
    assert all(c.config.partition.clients == 3 for c in fewer.cells)
    images = wanted.with_options({"data": "digits", "backbone": "resnet18"})
    assert images.cells[0].config.own.train_features is None
    assert images.cells[0].config.extract.backbone == "resnet18"


def test_an_option_that_some_methods_have_is_given_to_these(described, tmp_path):
    wanted = read_study(described(GRID))
    wider = wanted.with_options({"width": 5})
    assert list(wider.left_out) == [("width", ["linear", "fedavg"], False)]
    assert [c.key for c in wider.cells] == [c.key for c in wanted.cells]
    both = find("safle-table1").with_options({"rounds": 3, "experts": 7, "data": "digits"}, 1)
    rounds = {c.label: c.settings["rounds"] for c in both.cells if c.method}
    assert set(rounds.values()) == {3}
    assert len(rounds) == 5
    experts = {c.label for c in both.cells if "experts" in c.config.head_options}
    assert experts == {"SAFLe", "SAFLe, without a ridge", "SAFLe, the paper's shape"}
    text = 'head = "deepafl"\nlayers = 1\nhead-seed = 7\neach-round = true\n'
    text += '[[method]]\n[[method]]\nhead = "linear"\n[[method]]\nbaseline = "fedavg"\n'
    cells = read_study(described(GIVEN + text)).cells
    ours = [" ".join(cell.commands(StudyFolder(tmp_path))[-1]) for cell in cells]
    for option, has in (("--each-round", [1, 1, 0]), ("--head-seed 7", [1, 0, 0]),
                        ("--layers 1", [1, 0, 1]), ("--head ", [1, 0, 0])):  # fmt: skip
        assert [option in one for one in ours] == list(map(bool, has)), option


def test_a_given_data_set_chooses_its_block(road):
    """AFL's table 1 deals CIFAR-10 other clients than CIFAR-100; a data set of neither gets the
    first block's."""
    wanted, few = find("afl-table1"), {(0.1, None), (0.05, None), (None, 4), (None, 2)}
    many = {(0.1, None), (0.01, None), (None, 10), (None, 5)}
    images = {"backbone": "resnet18"}
    files = {"train_features": road.train, "test_features": road.test}
    for given, expected in (
        ({**images, "data": "cifar10"}, few), ({**images, "data": "cifar100"}, many),
        ({**images, "data": "digits"}, few), (files, few),
    ):  # fmt: skip
        cells = wanted.with_options(given, 1).cells
        dealt = [cell.config.partition for cell in cells]
        assert {(one.alpha, one.shards_per_client) for one in dealt} == expected, given
        assert len(cells) == 4 * 8


@pytest.mark.parametrize(
    ("data", "preset", "ridge"),
    [("cifar10", "cifar10", 10.0), ("digits", "released-script", 1.0)],
)  # fmt: skip
def test_the_papers_preset_is_that_of_the_data_set(data, preset, ridge):
    config = RunConfig(data=data, backbone="resnet18", head="deepafl", preset="paper")
    assert config.all_head_options()["preset"] == preset
    wanted = find("deepafl-table1").with_options({"data": data}, 1)
    deep = next(cell for cell in wanted.cells if cell.label == "DeepAFL")
    found = get_axes(deep)
    assert (found["ridge"], found["layers"]) == (ridge, 20)


def test_the_seed_is_that_of_everything_that_draws(described):
    text = GRID.replace('head = "linear"\nridge = 1', 'head = "deepafl"\nlayers = 1')
    of_head, of_baseline = read_study(described(text)).cells[-2:]
    assert of_head.config.partition.seed == of_head.config.own.head_seed == 1
    assert of_baseline.config.partition.seed == of_baseline.settings["seed"] == 1
    softmax = 'head = "softmax"\nrounds = 1\n'
    for features, drawn in (("", None), ('features = "random"', 1)):
        text = GRID.replace('head = "linear"\nridge = 1', softmax + features)
        config = read_study(described(text)).cells[-2].config
        assert (config.partition.seed, config.own.head_seed) == (1, drawn)


def test_alpha_is_that_of_the_clients_and_not_that_of_feddyn(described):
    method = 'label = "FedDyn"\nbaseline = "feddyn"\nmethod-alpha = 0.02\nseed = 0\n'
    wanted = read_study(described(f"{GRID.split('seed')[0]}alpha = [0.1, 3]\n{method}"))
    assert [cell.config.partition.alpha for cell in wanted.cells] == [0.1, 3.0]
    assert [cell.settings["alpha"] for cell in wanted.cells] == [0.02, 0.02]
    assert [get_axes(cell)["alpha"] for cell in wanted.cells] == [0.1, 3]
    plain = read_study(described(f'{GRID.split("seed")[0]}alpha = 3\nbaseline = "feddyn"\n'))
    assert "alpha" not in plain.cells[0].settings
    assert plain.cells[0].config.partition.alpha == 3.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("alhpa = 3", "'alhpa' is no option"),
        ("[study]\nrow = 'head'", "'row' is no option"),
        ("[study]\nrows = 3", "is a text"),
        ("head = 'linear'\nalpha = []", "has 0 cells; expected 1 to 10,000"),
        ("clients = 3\n[study]\nlike = '../a'", "expected a study's name"),
        ('clients = 3\n[study]\nlike = "a\\u0000b"', "expected a study's name"),
    ],
)
def test_a_description_that_is_wrong_is_refused(described, text, error):
    with pytest.raises(AflError, match=error):
        read_study(described(text)).cells  # noqa: B018
    with pytest.raises(UsageError, match=r"no study 'nothing'.*--list"):
        find("nothing")


def test_cells_have_the_keys_that_0_3_gave_to_the_same_meaning():
    for setting, key in (
        ({"head": "safle", "preprocess": "paper"}, "safle-7a9439bcf588b09f"),
        ({"head": "safle"}, "safle-8dd69091e48a827d"),  # which named weights
        ({"baseline": "fedavg", "preprocess": "paper"}, "fedavg-3997e41897b44a90"),
        ({"ridge": 1, "preprocess": "paper"}, "linear-c1e4167b73eafae9"),
        ({"ridge": 0, "preprocess": "paper"}, "linear-9aa3c6c23fde12ce"),  # which named no ridge
        ({}, "linear-09f82ab7ebf9db84"),  # which named weights and auto
    ):
        given = {"data": "digits", "backbone": "resnet18", "clients": 3, **setting}
        assert make_cell(given).key == key


def test_the_folder_of_a_study_of_0_3_has_its_defaults(described, tmp_path, cli):
    path, out = described(GIVEN), tmp_path / "S"
    assert cli("study", path, "--ridge", 0, "-o", out).exit_code == 0
    told = json.loads((out / "study.json").read_text())
    del told["before"], told["tree"]["ridge"]
    told["tree"]["keep_rounds"], told["shown"]["stat"] = "last", "mean"  # gone since
    (out / "study.json").write_text(json.dumps(told))
    (cell,) = (out / "cells").iterdir()
    made = (cell / "05-head.h5").stat().st_mtime_ns
    assert cli("study", out).exit_code == 0
    assert [one.name for one in (out / "cells").iterdir()] == [cell.name]
    assert "missing" not in cli("table", out).stdout
    assert cli("study", path, "-o", out).exit_code == 0  # today's
    assert len(list((out / "cells").iterdir())) == 2
    assert (cell / "05-head.h5").stat().st_mtime_ns == made


def test_a_study_may_be_like_another_with_other_keys(described, tmp_path):
    whole = read_study(described(GRID))
    more = 'clients = 3\n[study]\nlike = "small"\ntitle = "More"\n[[split]]\nalpha = [1, 2]\n'
    more = read_study(described(more, "more"))
    assert (more.name, more.title, more.shown) == ("more", "More", whole.shown)
    assert list(more.tree) == list(whole.tree)
    assert {**more.tree, "clients": 6, "split": whole.tree["split"]} == whole.tree
    assert [c.setting.get("alpha") for c in more.cells] == [1, 1, 2, 2]
    shipped = read_study(described('[study]\nlike = "deepafl-table14"\n', "shipped"))
    assert shipped.tree == find("deepafl-table14").tree
    for name, words in (("more", "is like 'small', which is like it in turn"),
                        ("afl-tabel1", "which is not a study")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            read_study(described(f'[study]\nlike = "{name}"\n'))
    # A setting goes to the methods that have it, as on the command line.
    given = {"data": "digits", "backbone": "resnet18"}
    fewer = read_study(described('generator-steps = 50\n[study]\nlike = "afl-table1"\n'))
    theirs, ours = (one.with_options(given, 1).cells for one in (find("afl-table1"), fewer))
    steps = [cell.settings.get("generator_steps") for cell in ours]
    assert steps == [50 if cell.method == "fedgen" else None for cell in ours]
    assert [cell.label for cell in ours] == [cell.label for cell in theirs]
    deep = read_study(described('layers = 7\n[study]\nlike = "deepafl-table9"\n')).cells
    assert {c.config.head_options["layers"] for c in deep if c.label == "DeepAFL"} == {7}


def test_an_option_of_some_methods_means_the_same_in_a_file_and_on_the_command_line(
    described, cli, tmp_path
):
    heads = 'head = ["linear", "random-features"]\n'
    for n, (text, given) in enumerate(((f"width = 200\n{heads}", {}), (heads, {"width": 200}))):
        path = described(GIVEN + text, f"s{n}")
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        done = cli("study", path, *words, "-o", tmp_path / "S", "--slurm", "--dry-run")
        assert done.exit_code == 0
        assert f"study s{n}: linear without --width" in done.stderr
        cells = read_study(path).with_options(given).cells
        assert [cell.config.head_options for cell in cells] == [{}, {"width": 200}]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('[[method]]\nbaseline = "fedavg"\neach-round = true\n[[method]]\nhead = "linear"', 2,
         "--each-round is no option of fedavg: leave it out"),
        ('[[method]]\nhead = "linear"\nwidth = 200\n[[method]]\nhead = "random-features"', 2,
         "--width is no option of linear: leave it out"),
        ('[[method]]\nbaseline = "fedavg"\nexperts = 3\n[[method]]\nhead = "safle"', 2,
         "--experts is no option of fedavg: leave it out"),
        ('head = ["linear", "deepfl"]', 2, "deepfl: there is no head 'deepfl'; the heads are"),
        ('head = ["linear", "nowhere.h5"]', 3, "nowhere.h5"),
        ('head = "safle"\nbuckets = [4, 1]', 2, "--buckets is 2 to 256; found 1"),
        ('head = "linear"\nclients = 2\n[[x]]\npartition = "nowhere.h5"', 2, "--clients is for"),
        ('baseline = "fedavg"\nlr = "auto"', 2, "--lr should be a valid number; found 'auto'"),
        ('test-features = "nowhere.h5"', 3, "nowhere.h5"),
        ('baseline = "fedavg"\ntest-features = "broken.h5"', 3, "broken.h5 is not an afltool file"),
        (f'{IMAGES}data = ["digits", "imagefolder:no"]\nbackbone = "resnet18"', 3, "no"),
        (f'{IMAGES}data = "digits"\nbackbone = ["resnet18", "resnet99"]\nbaseline = "fedavg"', 2,
         "resnet99"),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_run_is_refused_before_the_first(
    text, code, message, described, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("broken.h5").write_bytes(b"no features")
    gone = ("train-features", "test-features") if text.startswith(IMAGES) else ()
    keys = [k for k in GIVEN.splitlines() if k.split(" = ")[0] not in (*gone, *text.split())]
    path = described("\n".join([*keys, text]))
    for how in [], ["--slurm"]:
        done = cli("study", path, "-o", "S", *["--store", "store"] * bool(gone), *how)
        assert (done.exit_code, "Traceback" in done.stderr) == (code, False), done.stderr
        assert message in " ".join(done.stderr.split())
        assert not Path("S").exists()
        assert not Path("store").exists()


def test_python_carries_out_a_study_and_reads_its_table(described, tmp_path, cli):
    """The functions are the commands; options are those of the command line, by name."""
    path, at = described(GRID), tmp_path / "S"
    axes = {"alpha": [0.5, 2], "ridge": 3}
    assert afltool.study(path, at, seeds=1, only="linear-*", axes=axes) == at
    found = afltool.table(at, columns="alpha", where=("head=linear",))
    assert str(found) == cli("table", at, "--columns", "alpha", "--where", "head=linear").stdout
    assert [one["column"] for one in found.records()][:2] == ["alpha = 0.5", "alpha = 2"]
    afltool.study(at, only="linear-*")  # its own folder
    for given, words in (
        ({"axes": {"clinets": 3}}, "'clinets' is no option of a study"),
        ({"axes": {"seeds": 0}}, "'seeds' is no option of a study"),
        ({"axes": {"width": 7}}, "--width is no option of linear, fedavg"),
        ({"seeds": 0}, "--seeds is 1 to"), ({"out": None}, "--out is needed"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            afltool.study(path, **{"out": tmp_path / "T", **given})
    with pytest.raises(TypeError, match="'colums'"):
        afltool.table(at, colums="alpha")
    assert not (tmp_path / "T").exists()


# ------------------------------------------------------------ cells


def test_a_cell_is_what_its_command_makes_alone(wanted, copied_study, tmp_path, cli):
    alone, folder = StudyFolder(tmp_path / "alone"), StudyFolder(copied_study)
    before = {p: p.stat().st_mtime_ns for p in copied_study.rglob("*.h5")}
    for cell in (wanted.cells[0], wanted.cells[-1]):  # a run, a baseline
        for words in cell.commands(alone) + cell.commands(folder):
            made = cli(*words)
            assert made.exit_code == 0, made.stderr
        here, there = (load_current(at, cell) for at in (folder, alone))
        assert here["digests"] == there["digests"]
        assert here["top1"] == there["top1"]
    assert {p: p.stat().st_mtime_ns for p in before} == before, "files of the stages"


def test_commands_of_cells_extract_into_the_store_that_they_share(described, tmp_path):
    text = 'data = "digits"\nbackbone = "resnet18"\nseed = [0, 1]\n[[method]]\nhead = "linear"\n'
    wanted = read_study(described(text + '[[method]]\nbaseline = "fedavg"\n'))
    wanted = wanted.with_options({"store": str(tmp_path / "kept")})
    lines = [line for cell in wanted.cells for line in cell.commands(StudyFolder(tmp_path / "S"))]
    assert [one[0] for one in lines] == ["run", *["extract"] * 2, "partition", "baseline"] * 2
    own = [line for line in lines if line[0] in ("extract", "run")]
    assert all(str(tmp_path / "kept") in line for line in own)


def test_equal_totals_are_solved_once_and_a_cell_keeps_its_last_round(wanted, done_study):
    folder, heads = StudyFolder(done_study), []
    for cell in wanted.cells:
        names = sorted(p.name for p in folder.cell(cell.key).glob("05-*"))
        last = {"linear": ["05-head.h5"], "deepafl": ["05-head-3.h5"]}
        assert names == ([] if cell.method else last[cell.config.own.head])
        heads += [folder.run(cell).head(1)] if names == last["linear"] else []
    assert len(heads) == 4
    assert len({head.stat().st_ino for head in heads}) == 1


SHARING = f"{GIVEN}held-out = 0.2\n"
#: Methods by head, and how many sums their cells need: held-out clients and others, in each round.
OF_HEADS = {
    "linear": ("ridge = [1, 2]\n", 2),
    "safle": ("experts = 4\ngroup-size = 2\nbuckets = 4\nridge = [1, 2]\n", 2 * 3),
    # Its ridges are options of the head: each cell gathers for itself, three rounds.
    "deepafl": ("layers = 1\nwidth = 8\nridge = [1, 2]\nblock-ridge = [0.1, 1]\n", 2 * 12),
}
SLOW = [pytest.param(head, marks=pytest.mark.slow) for head in OF_HEADS if head != "linear"]


@pytest.mark.parametrize("head", ["linear", *SLOW])
def test_one_gather_serves_every_ridge(described, tmp_path, head):
    """Cells that differ in what only solves use have the sums of one gather, and equal digests."""
    text, sums = OF_HEADS[head]
    wanted = read_study(described(f'{SHARING}[[method]]\nhead = "{head}"\n{text}'))
    at = StudyFolder(tmp_path / "S")
    assert calls(lambda: carried_out(wanted, at.root))[SUMS] == sums
    cell = wanted.cells[-1]
    here, alone = RunFolder(at.cell(cell.key)), RunFolder(tmp_path / "alone")
    afltool.run(cell.config, alone.root)
    number = len(load_current(at, cell)["bytes_per_client"])
    for place in (RunFolder.total, RunFolder.held_out, RunFolder.head):
        found = [read_header(place(one, number)) for one in (here, alone)]
        assert found[0]["digest"] == found[1]["digest"], (number, place)
        assert found[0]["recipe"] == found[1]["recipe"]
        assert found[0].get("clients") == found[1].get("clients")


DEEP = f"""{GIVEN}
alpha = [0.1, 9]
head = "deepafl"
layers = 1
width = 8
each-round = true
"""


def test_a_deep_cell_of_another_partition_goes_on_after_an_interruption(described, tmp_path):
    """Its heads remember its own clients, and not those of the cell that was solved first."""
    wanted = read_study(described(DEEP))
    at = StudyFolder(carried_out(wanted, tmp_path / "S"))
    second = RunFolder(at.cell(wanted.cells[1].key))
    before = read_header(second.head(3))["digest"]
    for path in (second.head(3), second.total(3), second / RunFolder.SUMMARY):
        path.unlink()
    carried_out(wanted, at.root)
    assert read_header(second.head(3))["digest"] == before


PAIRWISE = f"""{GIVEN}
alpha = 0.1
[[method]]
head = "linear"
[[method]]
head = "linear"
law = "pairwise"
keep-clients = true
gamma = [0, 1]
"""


def test_the_pairwise_law_needs_gamma_and_its_failure_is_told(described, tmp_path, cli):
    """AFL's table 3: with γ removed by RI the head of the sum, without γ no head at all."""
    at, path = tmp_path / "S", described(PAIRWISE)
    with pytest.raises(
        IncompleteError, match=r"1 of 3 .*law pairwise, .*gamma 0 \(a client's gram"
    ):
        carried_out(read_study(path), at)
    of_sum, failed, with_ri = (
        load_current(StudyFolder(at), cell) for cell in read_study(path).cells
    )
    assert failed is None
    assert with_ri["options"]["law"] == "pairwise"
    heads = [
        load_head(RunFolder(StudyFolder(at).cell(read_study(path).cells[i].key)).head(1))[
            0
        ].state_dict()
        for i in (0, 2)
    ]
    np.testing.assert_allclose(heads[1]["weights"], heads[0]["weights"], rtol=0, atol=1e-9)
    assert with_ri["top1"] == of_sum["top1"]
    shown = cli("table", at, "--columns", "law,gamma").stdout
    assert "failed" in shown
    assert "a client's gram matrix (8 × 8) cannot be inverted" in shown
    with pytest.raises(UsageError, match=r"--law pairwise .* needs --keep-clients"):
        RunConfig(train_features=at, test_features=at, law="pairwise")


def test_equal_cells_of_two_descriptions_have_one_folder(wanted, road, tmp_path):
    copy = shutil.copy(road.train, tmp_path / "elsewhere.h5")
    moved = wanted.with_options({"train_features": copy, "test_features": road.test})
    assert [c.key for c in moved.cells] == [c.key for c in wanted.cells], "by digest, not by path"
    other = wanted.with_options({"clients": 7})
    assert not {c.key for c in other.cells} & {c.key for c in wanted.cells}


def test_tables_go_straight_into_a_study_as_into_a_run(road, tmp_path, cli, monkeypatch):
    """The test rows get the number format of the training rows; the folder names feature files."""
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    path, given = tmp_path / "s.toml", {"fraction-bits": 8}
    files = {"train-features": road.embeddings, "test-features": road.folder / "test.npz"}
    lines = [f"{name} = {json.dumps(str(v))}" for name, v in files.items()]
    path.write_text("\n".join([*lines, "fraction-bits = 8", "clients = 3", "[[method]]",
                               "[[method]]", 'baseline = "fedavg"', "rounds = 1"]))  # fmt: skip
    done = cli("study", path, "-o", tmp_path / "S")
    assert done.exit_code == 0, done.stderr
    words = [word for name, v in {**files, **given}.items() for word in (f"--{name}", v)]
    assert cli("run", *words, "--clients", 3, "-o", tmp_path / "run").exit_code == 0
    alone = json.loads((tmp_path / "run" / "summary.json").read_text())["digests"]
    folder, cells = StudyFolder(tmp_path / "S"), find(tmp_path / "S").cells
    of_run, baseline = (load_current(folder, cell) for cell in cells)
    assert of_run["digests"] == alone
    assert baseline["digests"]["train"] == alone["train"]
    assert "tables/" in (tmp_path / "S" / "study.json").read_text()
    assert cli("study", path, "-o", tmp_path / "S").exit_code == 0
    path.write_text(path.read_text().replace(str(road.embeddings), str(tmp_path / "no.npz")))
    assert cli("study", path, "-o", tmp_path / "T").exit_code == 3
    assert not (tmp_path / "T").exists()


# ------------------------------------------------------------ going on


def test_an_interrupted_study_goes_on(described, tmp_path, caplog):
    wanted = read_study(described(GRID))

    def stop(one):
        if one["event"] == "run_done":
            progress.request_stop("a test")

    try:
        with progress.listening(stop), pytest.raises(StoppedError):
            carried_out(wanted, tmp_path / "S")
    finally:
        forget_stop()
    found = status(tmp_path / "S")["counts"]
    assert (found["done"], sum(found.values())) == (1, 4)
    caplog.set_level("INFO", "afltool")
    carried_out(wanted, tmp_path / "S")
    told = [line.split("]")[0] for line in caplog.messages if line.startswith("[")]
    left = [3, 2, 4]  # cells that share sums are neighbors
    assert told == [f"[{n}/4" for n in left], "what is done is not done again"
    assert status(tmp_path / "S")["state"] == "done"


def test_a_cell_that_fails_is_named_and_the_others_go_on(described, tmp_path):
    wanted = read_study(described(GRID))
    bad = RunFolder(StudyFolder(tmp_path / "S").cell(wanted.cells[2].key))
    bad.total(1).mkdir(parents=True)  # no place for a file
    with pytest.raises(IncompleteError, match=r"1 of 4 cells failed: linear, scheme iid") as got:
        carried_out(wanted, tmp_path / "S")
    assert got.value.exit_code == 5
    found = status(tmp_path / "S")
    assert found["counts"] == {"done": 3, "failed": 1}
    assert all(c["why"] for c in found["cells"] if c["state"] == "failed")
    bad.total(1).rmdir()
    carried_out(wanted, tmp_path / "S")
    assert status(tmp_path / "S")["counts"] == {"done": 4}
    assert group_failures([("a", "x 1"), ("b", "y"), ("c", "x 2"), ("d", "x 3")], 2) == (
        "a, c and 1 more (x 1); b (y)"
    )


def test_a_cell_that_kills_its_process_twice_is_left_out_once(described, tmp_path, watched):
    wanted, folder = read_study(described(GRID)), StudyFolder(tmp_path / "S")
    bad = wanted.cells[1].key
    mark = folder.cell(bad) / StudyFolder.BEGUN
    for killed in (1, 2):
        process = os.fork()
        if not process:
            progress.set_reporter(lambda *_: os._exit(9) if mark.exists() else watched)
            carried_out(wanted, folder.root)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
        *_, last = lines = mark.read_text().splitlines()
        assert (len(lines), last.startswith(f"process {process} on ")) == (killed, True)
    with pytest.raises(IncompleteError, match=r"1 of 4 cells failed: FedAvg.*2 processes were kil"):
        carried_out(wanted, folder.root)
    assert status(folder.root)["counts"] == {"done": 3, "failed": 1}
    carried_out(wanted, folder.root)
    assert status(folder.root)["state"] == "done"
    assert not list(folder.root.rglob(StudyFolder.BEGUN))


def at_work_on(mark, ready, done):
    """A process of its own that is at work on a cell until it may end; its number."""
    process = os.fork()
    if process:
        return process
    with work_marker(mark):
        os.write(ready, b"x")
        os.read(done, 1)
    os._exit(0)


def test_a_cell_that_another_process_is_at_work_on_comes_later(described, tmp_path, monkeypatch):
    """However many were killed in it: that this one is alive is seen."""
    wanted, folder = read_study(described(GRID)), StudyFolder(tmp_path / "S")
    mark = folder.cell(wanted.cells[1].key) / StudyFolder.BEGUN
    mark.parent.mkdir(parents=True)
    mark.write_text("process 1 on x\n" * 5)
    (began, ready), (done, end) = os.pipe(), os.pipe()
    other = at_work_on(mark, ready, done)
    os.read(began, 1)
    waits = []

    def sleep(seconds):
        waits.append(status(folder.root)["counts"])
        os.write(end, b"x")
        os.waitpid(other, 0)

    monkeypatch.setattr(worker.time, "sleep", sleep)
    carried_out(wanted, folder.root)
    assert waits == [{"done": 3, "unfinished": 1}]
    assert status(folder.root)["state"] == "done"
    for descriptor in (began, ready, done, end):
        os.close(descriptor)


def test_a_study_that_is_too_large_or_another_is_refused_before_it_starts(
    wanted, done_study, described, tmp_path
):
    with pytest.raises(UsageError, match=r"600,000 cells; expected 1 to 10,000"):
        carried_out(wanted.with_options({"clients": list(range(1, 10**5 + 1))}, 1), tmp_path / "S")
    assert not (tmp_path / "S").exists()
    other = read_study(described(GRID, "other"))
    with pytest.raises(OutputExistsError, match=r"holds the study 'small'; expected none or 'oth"):
        carried_out(other, done_study)


def test_a_description_or_a_summary_that_somebody_changed_is_refused(
    wanted, copied_study, tmp_path, cli
):
    place = copied_study / "study.json"
    whole = json.loads(place.read_text())
    for damage in (
        {"tree": 5}, {"shown": {"rows": 3}}, {"tree": {"nonsense": 1}}, {"name": None},
        {"tree": {"block": [{"baseline": ["fedavg", {}]}]}},
    ):  # fmt: skip
        place.write_text(json.dumps({**whole, **damage}))
        for words in (["table"], ["status"], ["study"], ["report", "-o", tmp_path / "p.html"]):
            asked = cli(words[0], copied_study, *words[1:])
            assert asked.exit_code in (2, 3), asked.stdout
            assert asked.stderr.startswith("error: ")
    place.write_text(json.dumps(whole))
    place = StudyFolder(copied_study).cell(wanted.cells[0].key) / "summary.json"
    whole = json.loads(place.read_text())
    for damage in ({"top1": "much"}, {"digests": {}}, {"rounds": [3]}, {"bytes_per_client": 3}):
        place.write_text(json.dumps({**whole, **damage}))
        assert status(copied_study)["counts"] == {"unfinished": 1, "done": 11}


@pytest.mark.parametrize(("number", "entry", "name"), [
    (0, "options", "min_norm"), (-1, "settings", "momentum"),
])  # fmt: skip
def test_a_cell_with_a_default_that_has_changed_is_made_again(
    wanted, copied_study, caplog, number, entry, name
):
    cell = wanted.cells[number]
    place = StudyFolder(copied_study).cell(cell.key) / "summary.json"
    found = json.loads(place.read_text())
    found[entry][name] = 7
    place.write_text(json.dumps(found))
    assert status(copied_study)["counts"] == {"unfinished": 1, "done": 11}
    caplog.set_level("INFO", "afltool")
    carried_out(wanted, copied_study)
    assert f"is made again: --{name.replace('_', '-')} was 7 and is" in caplog.text
    assert load_current(StudyFolder(copied_study), cell)["digests"] == found["digests"]


def test_the_command_carries_out_and_goes_on(described, tmp_path, cli):
    at, path = tmp_path / "S", described(GRID)
    few = ["--clients", 4, "--seeds", 1]
    made = cli("study", path, "-o", at, *few)
    assert (made.exit_code, made.stdout) == (0, f"{at}\n")
    assert "[4/4] FedAvg, 2 rounds, scheme iid: top-1" in made.stderr
    assert "linear: 2 cells of 1 round, 33% of all rounds\n" in made.stderr
    assert "FedAvg, 2 rounds: 2 cells of 2 rounds, 67% of all rounds\n" in made.stderr
    again = cli("study", at)
    assert "4 cells, 4 done, 0 to do" in again.stderr
    asked = cli("status", at, "--json")
    assert json.loads(asked.stdout)["state"] == "done"
    assert "4 done" in cli("status", at).stdout
    assert cli("study").exit_code == 2
    assert len({*names_of_cells(find(str(at)).cells).values()}) == 4


def _printed(folder, listed):
    """A command of each kind that shipped studies print: of equal words, but for numbers."""
    for name in list_shipped():
        wanted = find(name)
        assert wanted.texts["shows"].endswith("."), name
        assert wanted.texts["title"], name
        digits = wanted.with_options({"data": "digits", "backbone": "resnet18"}).cells
        assert 0 < len(digits) <= listed[name], name
        for cell in wanted.cells:
            command = cell.commands(folder)[-1]
            yield re.sub(r"[0-9.]+|\S*/\S*", "N", " ".join(command)), command


@pytest.mark.slow
def test_every_command_that_a_shipped_study_prints_is_accepted(cli, tmp_path):
    """Job scripts are made of the options of `run` after the same checks, without data."""
    counts = {one["name"]: one["cells"] for one in list_studies()}
    assert counts["afl-table3"] == 30
    kinds = dict(_printed(StudyFolder(tmp_path / "S"), counts))
    assert {command[0] for command in kinds.values()} == {"run", "baseline"}
    for stage, *words in kinds.values():
        if stage == "run":
            done = cli("slurm", *words, "--dry-run")
            assert done.exit_code == 0, (words, done.stderr)
        else:
            done = cli(stage, *words)
            assert "there is no file" in done.stderr, (words, done.stderr)


def blocks(kind):
    text = (Path(__file__).parents[1] / "docs" / "studies.md").read_text()
    return re.findall(rf"```{kind}\n(.*?)```", text, re.S)


def of_the_docs(road, folder):
    """The study of docs/studies.md, on the road's features."""
    path = folder / "my.toml"
    path.write_text(blocks("toml")[0].replace('"t', f'"{road.folder}/t'))
    return path


@pytest.mark.slow
def test_the_commands_of_the_documentation_work(road, tmp_path, cli, monkeypatch):
    of_the_docs(road, tmp_path)
    monkeypatch.chdir(tmp_path)
    wanted = read_study(tmp_path / "my.toml")
    assert len(wanted.cells) == 2 * 3 * 3
    assert {cell.label for cell in wanted.cells} == {"linear", "DeepAFL", "fedavg"}
    lines = "".join(blocks("sh")).splitlines()
    assert len(lines) == 6
    for line in lines:
        made = cli(*shlex.split(line.replace("study my.toml", "study my.toml --seeds 2"))[1:])
        assert made.exit_code == 0, made.stderr
    assert (tmp_path / "S.html").exists()
    assert (tmp_path / "alpha.pdf").exists()
