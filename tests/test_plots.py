"""Pictures: made whole or not at all, without warnings, at every size people have."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import afltool
from afltool.errors import InputError, InvalidDataError, OutputExistsError, UsageError
from afltool.report.partition_picture import plot_partition
from afltool.report.partitions_picture import Panel, plot_partitions
from afltool.report.plots import plot_confusion, plot_ridge_path
from afltool.report.rounds import SHOWN, plot_rounds, rounds_table
from afltool.report.terminal import print_whole
from afltool.store.kinds import kind_of_bytes

image = pytest.importorskip("matplotlib.image")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from frontier_picture import frontier, plot_frontier  # noqa: E402

sys.path.pop(0)


def size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the file's header."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def names(n: int) -> list[str]:
    return [f"class {i}" for i in range(n)]


def counts(clients: int, classes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.2, 40.0, (clients, classes)))


@pytest.mark.parametrize(
    ("clients", "classes"),
    [(1, 1), (2, 3), (30, 30), (31, 2), (100, 10), (2000, 100)],
)
def test_plot_partition_at_every_size(tmp_path: Path, clients: int, classes: int) -> None:
    path = tmp_path / "clients.png"
    table = counts(clients, classes)
    assert plot_partition(table, names(classes), path, f"{clients} clients") == path
    width, height = size(path)
    assert width == 1800
    assert 700 < height < 2500
    assert image.imread(path)[..., :3].std() > 0.05  # something is drawn
    assert list(tmp_path.iterdir()) == [path]


def test_partitions_side_by_side_have_the_width_that_is_asked_for(tmp_path: Path) -> None:
    panels = [Panel(counts(k, 10), names(10), f"{k} clients") for k in (10, 200)]
    path = plot_partitions(panels, tmp_path / "84.png", 84.0)
    assert abs(size(path)[0] - 84 / 25.4 * 150) <= 1
    with pytest.raises(UsageError, match=r"3 partitions do not fit .* into 50 mm: at most 2 do"):
        plot_partitions([*panels, panels[0]], tmp_path / "no.png", 50.0)


def test_the_titles_of_several_partitions_say_what_differs(road, tmp_path: Path, cli) -> None:
    files = [
        afltool.partition(road.train, tmp_path / f"{a}.h5", alpha=a, clients=6) for a in (0.1, 5.0)
    ]
    made = cli("plot", "partition", *files, "-o", tmp_path / "two.svg", "--width-mm", 84)
    assert made.exit_code == 0, made.stderr
    text = (tmp_path / "two.svg").read_text()
    assert [t in text for t in ("alpha 0.1)", "alpha 5.0)", "clients 6")] == [True, True, False]
    assert cli("plot", "partition", *files, "-o", tmp_path / "two.gif").exit_code == 2


@pytest.mark.parametrize("clients", [5, 500])
def test_plot_partition_without_a_row(tmp_path: Path, clients: int) -> None:
    size(plot_partition(np.zeros((clients, 2), int), names(2), tmp_path / "empty.png", "nothing"))


@pytest.mark.parametrize("classes", [1, 2, 20, 100])
def test_plot_confusion_at_every_size(tmp_path: Path, classes: int) -> None:
    confusion = counts(classes, classes) + np.diag(np.full(classes, 80))
    confusion[0] = 0  # a class that the test set lacks
    path = plot_confusion(confusion, names(classes), tmp_path / "confusion.png", "a head")
    assert min(size(path)) > 600
    assert max(size(path)) < 3000


def test_plot_ridge_path_with_zero_and_gaps(tmp_path: Path) -> None:
    lambdas = [0.0, 1e-3, 1e-2, 0.1, 1.0]
    curves = {"GCV": [np.nan, 3.0, 2.0, 2.5, np.inf], "held-out top-1": np.linspace(0.2, 0.6, 5)}
    chosen = {"GCV": 0.01, "held-out top-1": 0.0}
    one = plot_ridge_path(lambdas[1:], {"GCV": [3, 2, 1, 2]}, {}, tmp_path / "one.png")
    two = plot_ridge_path(lambdas, curves, chosen, tmp_path / "two.png")
    assert size(one)[1] < size(two)[1]


def test_names_with_dollars_foreign_letters_and_great_length(tmp_path: Path) -> None:
    odd = ["$x_1$", "50$ $60", "狗", "a" * 300]
    plot_confusion(np.eye(4, dtype=np.uint8), odd, tmp_path / "c.png", "cost: 5$ or 6$")
    plot_partition(np.eye(4, dtype=np.uint8), odd, tmp_path / "p.png", "狗 $\\frac$")
    plot_ridge_path([0.1, 1.0], {"$a": [1, 2]}, {"$a": 1.0}, tmp_path / "r.png")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_suffix_says_the_format_and_equal_pictures_are_equal_bytes(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"p.{suffix}"
    first = plot_partition(counts(3, 2), names(2), path, "t").read_bytes()
    assert kind_of_bytes(first) == suffix.upper()
    path.unlink()
    assert plot_partition(counts(3, 2), names(2), path, "t").read_bytes() == first
    assert plot_partition(counts(3, 2), names(2), path, "t").read_bytes() == first


def test_another_picture_is_replaced_only_when_asked_and_another_kind_never(tmp_path: Path) -> None:
    path = plot_partition(counts(10, 4), names(4), tmp_path / "p.png", "t")
    before = path.read_bytes()
    with pytest.raises(OutputExistsError, match="use --overwrite"):
        plot_partition(counts(9, 4), names(4), path, "t")
    assert path.read_bytes() == before
    plot_partition(counts(9, 4), names(4), path, "t", overwrite=True)
    assert path.read_bytes() != before
    path.write_bytes(b"my thesis")
    with pytest.raises(OutputExistsError, match="another kind"):
        plot_partition(counts(9, 4), names(4), path, "t", overwrite=True)
    assert path.read_bytes() == b"my thesis"
    for name in ("p.jpg", "p", "p.eps"):
        with pytest.raises(UsageError, match=r"a picture is a \.png, \.svg, \.pdf file"):
            plot_partition(counts(9, 4), names(4), tmp_path / name, "t")
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    path.write_bytes(b"old")
    with pytest.raises(InvalidDataError, match="2 columns, one per class name, found shape"):
        plot_partition(counts(3, 4), names(2), path, "t")
    assert path.read_bytes() == b"old"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write"):
        plot_partition(counts(3, 4), names(4), tmp_path / "file" / "p.png", "t")
    (tmp_path / "file").unlink()
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_that_are_not_counts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    with pytest.raises(InvalidDataError, match="square"):
        plot_confusion(counts(3, 4), names(4), path, "t")
    with pytest.raises(InvalidDataError, match="minimum -1"):
        plot_confusion(-np.eye(2, dtype=int), names(2), path, "t")
    with pytest.raises(InvalidDataError, match="expected counts, found float64"):
        plot_partition(np.ones((2, 2)), names(2), path, "t")
    with pytest.raises(InvalidDataError, match=r"3 values, one per λ, found \(2,\) for 'GCV'"):
        plot_ridge_path([0.1, 1, 10], {"GCV": [1, 2]}, {}, path)
    with pytest.raises(InvalidDataError, match="curves over λ ≥ 0"):
        plot_ridge_path([-1.0, 1.0], {"GCV": [1, 2]}, {}, path)
    assert not path.exists()


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'afltool\[plot\]'"):
        plot_partition(counts(3, 4), names(4), tmp_path / "p.png", "t")


def test_import_is_cheap_and_pyplot_is_never_loaded(tmp_path: Path) -> None:
    out = tmp_path / "c.png"
    program = (
        "import sys; import afltool.report.plots as plots; assert 'matplotlib' not in sys.modules;"
        f"import numpy; from pathlib import *; out = {out!r};"
        "plots.plot_confusion(numpy.eye(2, dtype=int), 'ab', out, 't');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


# ---------------------------------------------------------------- accuracy against bytes


def point(family: str, megabytes: float, top1: float, error: float | None = None) -> dict:
    return {"family": family, "megabytes": megabytes, "top1": top1, "standard_error": error}


def test_plot_frontier_with_one_and_with_many_families(tmp_path: Path) -> None:
    for number in (1, 9):
        points = [
            point(f"head {i}", m, 0.8 + 0.01 * i, 0.01) for i in range(number) for m in (1, 9)
        ]
        drawn = tmp_path / f"f{number}.png"
        path = plot_frontier([*points, point("alone", 3.0, 0.5)], drawn, [2.0, 5e9])
        assert size(path)[0] == 1200
        assert image.imread(path)[..., :3].std() > 0.05


def test_the_frontier_is_what_no_smaller_point_beats() -> None:
    rng = np.random.default_rng(0)
    points = sorted(
        (point("a", m, t) for m, t in rng.random((50, 2))), key=lambda p: p["megabytes"]
    )
    best = frontier(points)
    for one in points:
        smaller = [p["top1"] for p in points if p["megabytes"] < one["megabytes"]]
        assert (one in best) == (one["top1"] > max(smaller, default=-1.0))


def test_plot_frontier_refuses_what_a_logarithm_cannot_show(tmp_path: Path) -> None:
    for points in ([], [point("a", 0.0, 0.5)]):
        with pytest.raises(InvalidDataError, match="more than 0 bytes"):
            plot_frontier(points, tmp_path / "f.png")
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("n", [1, 101])
def test_plot_rounds_at_every_length(tmp_path: Path, n: int) -> None:
    path = plot_rounds(rounds(n, gather_seconds=2.0), tmp_path / "rounds.png", "a $head$")
    assert size(path) == (1200, 1275)
    assert image.imread(path)[..., :3].std() > 0.05
    assert list(tmp_path.iterdir()) == [path]


def test_plot_rounds_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    bare = [{"phase": "gram", "solve_seconds": 0.1}]
    assert size(plot_rounds(bare, tmp_path / "rounds.png"))[1] < 500


def test_many_rounds_are_thinned_on_the_terminal_and_their_sums_are_of_all() -> None:
    table = rounds_table(rounds(101))
    assert table.row_count == SHOWN
    assert table.caption == f"{SHOWN} of 101 rounds"
    columns = {str(c.header): c for c in table.columns}
    cells = list(columns["round"].cells)
    assert (cells[0], cells[-1]) == ("round-0", "round-100")
    assert columns["up\nMB"].footer == "404"
    assert columns["solve\ns"].footer == "10.10"
    assert "rows" not in columns, "the same in every round: not worth a column"


def test_the_round_whose_head_is_kept_is_marked_when_it_is_not_the_last() -> None:
    told = rounds(5)
    told[4]["kept"] = True
    assert not rounds_table(told).caption
    told[4]["kept"], told[0]["kept"], told[1]["clients"] = False, True, 3
    table = rounds_table(told)
    assert table.caption == "←: the round whose head is kept"
    assert next(iter(table.columns[0].cells)) == "round-0 ←"
    assert [str(c.header) for c in table.columns][1] == "clients"


def test_no_figure_of_the_rounds_is_cut_on_a_narrow_terminal() -> None:
    told = [
        one | {"csr": 0.80421, "ifs": 1.83901, "dm": 1.78101, "top1": 0.7381} for one in rounds(3)
    ]
    text = io.StringIO()
    console = Console(width=30, file=text)
    print_whole(console, rounds_table(told))
    assert "…" not in text.getvalue()
    assert text.getvalue().count("73.81%") == 3
    assert console.width == 30
