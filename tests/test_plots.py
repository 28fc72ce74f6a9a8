"""Pictures: made whole or not at all, without warnings, at every size people have."""

from __future__ import annotations

import io
import json
import re
import struct
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import afltool
from afltool.errors import InputError, OutputExistsError, UsageError
from afltool.options.look import SizeOptions
from afltool.rendering.classes import Panel, plot_confusion, plot_partitions
from afltool.rendering.curves import plot_rounds
from afltool.rendering.tables import ROWS, rounds_table
from afltool.rendering.terminal import print_whole

image = pytest.importorskip("matplotlib.image")
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402


def size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the file's header."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def counts(clients: int, classes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.2, 40.0, (clients, classes)))


SMALL = SizeOptions(width_mm=60, dpi=40)


def plot_partition(table: np.ndarray, names: list[str], path: Path, title: str = "t") -> Path:
    return plot_partitions([Panel(table, names, title)], path, size=SMALL)


def test_pictures_of_every_size(tmp_path: Path) -> None:
    """Of one row or many, names of dollars and foreign letters; something is drawn."""
    paths, names = [], [f"class {i}" for i in range(40)]
    for clients, classes in ((1, 1), (1501, 40)):
        path = tmp_path / f"clients-{clients}.png"
        paths.append(plot_partition(counts(clients, classes), names[:classes], path))
    plot_partition(np.zeros((5, 2), int), names[:2], tmp_path / "empty.png")
    confusion = counts(20, 20) + np.diag(np.full(20, 80))
    confusion[0] = 0  # a class that the test set lacks
    paths.append(plot_confusion(confusion, names[:20], tmp_path / "c20.png", "a head"))
    odd = ["$x_1$", "50$ $60", "狗", "a" * 300]
    plot_confusion(np.eye(4, dtype=np.uint8), odd, tmp_path / "c.png", "5$ or 6$", size=SMALL)
    plot_partition(np.eye(4, dtype=np.uint8), odd, tmp_path / "p.png", "狗 $\\frac$")
    bare = plot_rounds([{"phase": "gram", "solve_seconds": 0.1}], tmp_path / "bare.png")
    whole = plot_rounds(rounds(9, gather_seconds=2.0), tmp_path / "rounds.png", "a $head$")
    assert size(bare)[1] < 500 < size(whole)[1], "what is not known is left out"
    for path in (*paths, whole):
        assert image.imread(path)[..., :3].std() > 0.02, path
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".png"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_no_bar_of_partitions_side_by_side_is_cut(tmp_path: Path, figures, order) -> None:
    tables = [np.full((20, 4), 15), np.diag([900, 300, 0, 0]), np.full((150, 4), 1)]
    panels = [Panel(tables[i], list("abcd"), f"{i}") for i in order]
    path = plot_partitions(panels, tmp_path / "p.png", size=SizeOptions(width_mm=84.0))
    seen = [(a.dataLim.y1, a.get_ylim()[1]) for a in figures[0].axes if a.patches and not a.images]
    assert [bar for bar, _ in seen] == [float(tables[i].sum(axis=1).max()) for i in order]
    assert {end for _, end in seen} == {1.05 * 900}
    assert abs(size(path)[0] - 84 / 25.4 * 150) <= 1
    with pytest.raises(UsageError, match=r"3 partitions do not fit .* into 50 mm: at most 2 do"):
        plot_partitions(panels, tmp_path / "no.png", size=SizeOptions(width_mm=50.0))


def test_the_titles_of_several_partitions_say_what_differs(road, tmp_path: Path, cli) -> None:
    files = [
        afltool.partition(road.train, tmp_path / f"{a}.h5", alpha=a, clients=6) for a in (0.1, 5.0)
    ]
    made = cli("plot", "partition", *files, "-o", tmp_path / "two.svg", "--width-mm", 180)
    assert made.exit_code == 0, made.stderr
    text = (tmp_path / "two.svg").read_text()
    assert [t in text for t in ("alpha 0.1)", "alpha 5.0)", "clients 6")] == [True, True, False]
    assert cli("plot", "partition", *files, "-o", tmp_path / "two.gif").exit_code == 2


def drawn(path: Path, height: float, overwrite: bool = False) -> Path:
    """A picture that takes little time."""
    small = SizeOptions(width_mm=40, dpi=30 if path.suffix == ".png" else None)
    return plot_confusion(np.diag([height, 1]), ["a", "b"], path, "t", overwrite, small)


def test_the_suffix_says_the_format_equal_pictures_are_equal_and_another_one_is_kept(
    tmp_path: Path, road, cli
) -> None:
    for suffix, begins in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = drawn(tmp_path / f"p.{suffix}", 1)
        before = path.read_bytes()
        assert before.startswith(begins)
        path.unlink()
        assert drawn(path, 1).read_bytes() == before
        with pytest.raises(OutputExistsError, match="use --overwrite"):
            drawn(path, 2)
        assert path.read_bytes() == before
        drawn(path, 2, overwrite=True)
        assert path.read_bytes() != before
    assert b"/Type3" not in path.read_bytes(), "fonts in a PDF are TrueType"
    assert b"/CIDFontType2" in path.read_bytes()
    for name in ("p.jpg", "p", "p.eps"):
        with pytest.raises(UsageError, match=r"a picture is a \.png, \.svg, \.pdf file"):
            drawn(tmp_path / name, 2)
    made = cli("plot", "partition", road.clients, "-o", path, "--dpi", 300)
    assert made.exit_code == 2
    assert "--dpi 300 is for a .png file" in made.stderr
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write"):
        plot_partition(counts(3, 4), list("abcd"), tmp_path / "file" / "p.png")
    assert {p.name for p in tmp_path.iterdir()} == {"p.png", "p.svg", "p.pdf", "file"}


def test_pyplot_is_never_loaded_and_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch
) -> None:
    drawn(tmp_path / "c.png", 1)
    assert "matplotlib.pyplot" not in sys.modules
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install .*\[plot\]'"):
        plot_partition(counts(3, 4), list("abcd"), tmp_path / "p.png")


# ---------------------------------------------------------------- every noun, for a paper

WIDTHS = (85, 180)


#: What is drawn of a study, after its folder; by round a line for each cell.
STUDY = {
    "study": ["--x", "alpha"],
    "study by bytes": ["--x", "upload_bytes"],
    "study by round": ["--x", "round", "--by", "head,alpha,partition-seed"],
}


@pytest.fixture(scope="module")
def drawable(road, done_run, done_study, tmp_path_factory) -> dict[str, list[object]]:
    """What follows `afltool plot`, for every noun, some of them with the most that they show."""
    at = tmp_path_factory.mktemp("drawable")
    run = done_run(head="softmax", each_round=True)
    last = run / json.loads((run / "summary.json").read_text())["stages"][-2]["file"]
    found = afltool.evaluate(last, road.test, metrics="auc,ece")
    (at / "ev.json").write_text(json.dumps(found))
    how = {"scheme": "shards", "shards_per_client": 2, "clients": 6}
    shards = afltool.partition(road.train, at / "s.h5", **how)
    return {
        "partition": ["partition", road.clients],
        "partitions": ["partition", road.clients, shards, road.clients],
        "confusion": ["confusion", at / "ev.json"],
        "reliability": ["reliability", at / "ev.json"],
        "rounds": ["rounds", run],
        **{name: ["study", done_study, *words] for name, words in STUDY.items()},
    }


NOUNS = ("partition", "partitions", "confusion", "reliability", "rounds", *STUDY)


@pytest.fixture
def figures(monkeypatch) -> list[Figure]:
    """The figures that are written, as matplotlib has laid them out."""
    written, save = [], Figure.savefig

    def kept(figure, *args, **options):
        save(figure, *args, **options)
        written.append(figure)

    monkeypatch.setattr(Figure, "savefig", kept)
    return written


def boxes(figure: Figure) -> tuple[dict[str, Any], set[str]]:
    """The places of headings, names of axes, numbers beside them, and legends; what slants."""
    found = [figure._suptitle, *figure.legends]
    for axes in figure.axes:
        found += [axes.title, axes._left_title, axes._right_title, axes.get_legend()]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [axis.label, axis.get_offset_text()]
            found += [
                one for tick in axis.get_major_ticks() for one in (tick.label1, tick.label2)
                if low <= tick.get_loc() <= high
            ]  # fmt: skip
    shown = [one for one in found if one is not None and one.get_visible()]
    shown = [one for one in shown if not isinstance(one, Text) or one.get_text()]
    told = [one.get_text() if isinstance(one, Text) else "legend" for one in shown]
    slanting = (isinstance(one, Text) and one.get_rotation() % 90 > 0 for one in shown)
    named = {f"{i}: {told[i]}": one.get_window_extent() for i, one in enumerate(shown)}
    return named, {name for name, one in zip(named, slanting, strict=True) if one}


@pytest.mark.slow  # every picture, drawn to be measured
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("noun", NOUNS)
def test_no_text_lies_on_another_or_beyond_the_edge(
    drawable, figures, tmp_path: Path, cli, noun: str, width: int
) -> None:
    path = tmp_path / "p.png"
    made = cli("plot", *drawable[noun], "-o", path, "--width-mm", width, "--dpi", 100)
    assert made.exit_code == 0, made.stderr
    (figure,) = figures
    wide, high = size(path)
    assert abs(wide - width / 25.4 * 100) <= 1
    assert abs(high - 100 * figure.get_figheight()) <= 1
    places, slanting = boxes(figure)
    assert not any("\\n" in name for name in places), "a line break that is not one"
    for name, box in places.items():
        assert -1 <= box.x0 <= box.x1 <= wide + 1, name
        assert -1 <= box.y0 <= box.y1 <= high + 1, name
    for (a, one), (b, other) in combinations(places.items(), 2):
        if a in slanting and b in slanting:
            continue  # their boxes overlap, they themselves do not
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(across, down) <= 1, f"{a!r} lies on {b!r}"
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.height < high / 2, "the legend has half of the picture"
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


@pytest.mark.parametrize("noun", ["study", "study by round"])
def test_no_two_lines_look_alike(done_study, figures, tmp_path: Path, cli, noun: str) -> None:
    made = cli("plot", "study", done_study, *STUDY[noun], "-o", tmp_path / "p.svg")
    assert made.exit_code == 0, made.stderr
    (figure,) = figures
    [axes] = figure.axes
    marked = [one for one in axes.lines if one.get_marker() not in ("None", "_", "|")]
    looks = [
        (one.get_color(), one.get_linestyle(), one.get_marker(), one.get_fillstyle())
        for one in marked
    ]
    assert len(looks) == len(set(looks)) == (4 if noun == "study" else 12)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(names) == len(set(names)) == len(looks)
    assert noun != "study" or axes.get_xscale() == "log", "an axis of factors"
    assert any(name.startswith(r"_Deep | 100%, \$x\$") for name in names)
    assert not any(re.search("[0-9a-f]{16}", name) for name in names), "a digest is no name"


# ---------------------------------------------------------------- rounds


def rounds(n: int, **more: float) -> list[dict]:
    """n rounds, errors in every other one, accuracies in every fourth."""
    found = []
    for i in range(n):
        one = {"phase": f"round-{i}", "rows": 10, "clients": 2, "solve_seconds": 0.1}
        one |= {"upload_bytes": 4_000_000, "download_bytes": 80_000, **more}
        if i % 2 == 0:
            one["training_mse"] = 1 / (1 + i)
        if i % 4 == 0:
            one |= {"top1": 0.8, "top5": 0.9, "kept": False}
        found.append(one)
    return found


def test_many_rounds_are_thinned_on_the_terminal_and_their_sums_are_of_all() -> None:
    table = rounds_table(rounds(101))
    assert table.row_count == ROWS
    assert table.caption == f"{ROWS} of 101 rounds"
    columns = {str(c.header): c for c in table.columns}
    cells = list(columns["round"].cells)
    assert (cells[0], cells[-1]) == ("round-0", "round-100")
    assert columns["up\nMB"].footer == "404"
    assert columns["solve\ns"].footer == "10.10"
    assert "rows" not in columns, "the same in every round: not worth a column"
    told = [one | {"csr": 0.80421, "top1": 0.7381} for one in rounds(5)]
    told[4]["kept"] = True
    assert not rounds_table(told).caption
    told[4]["kept"], told[0]["kept"], told[1]["clients"] = False, True, 3
    table = rounds_table(told)
    assert table.caption == "←: the round whose head is kept"
    assert next(iter(table.columns[0].cells)) == "round-0 ←"
    assert [str(c.header) for c in table.columns][1] == "clients"
    text = io.StringIO()
    console = Console(width=30, file=text)
    print_whole(console, table)
    assert "…" not in text.getvalue(), "no figure is cut on a narrow terminal"
    assert text.getvalue().count("73.81%") == 5
    assert console.width == 30
