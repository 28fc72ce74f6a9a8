"""What is wrong ends with its documented exit code and a message, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess

import h5py
import numpy as np
import pytest
from conftest import embeddings, fill, installed
from damage import cut, flip, forge, middle_of, unfinished

import afltool
from afltool.errors import NumericalError
from afltool.files import outputs
from afltool.files.tables import write_json
from afltool.values.arrays import canonical_json
from afltool.values.text import escape_json

KINDS = ("features", "partition", "statistics", "head")
USAGE, INPUT, MISMATCH, NUMERICAL = 2, 3, 4, 5


def refused(done, code, *fragments):
    """The command ended with ``code`` and a message that holds the fragments, and nothing else."""
    status = done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code
    assert status == code, done.stderr
    assert "Traceback" not in done.stderr
    message = " ".join(done.stderr.split())
    for fragment in fragments:
        assert str(fragment) in message
    assert done.stdout == ""


def readers(kind, path, road, out):
    """Every command that reads a file of this kind, with the file at ``path`` in its place."""
    silo = ["--client", "a", "--head", road.head0]
    dealt = ["--partition", road.clients, "--head", road.head0]
    return {
        "features": {
            "partition": ["partition", path, "--scheme", "iid", "--clients", 3, "-o", out],
            "silo": ["local-stats", path, *silo, "-o", out],
            "clients": ["local-stats", path, *dealt, "-o", out],
            "sum": ["local-stats", path, *dealt, "--sum", "-o", out],
            "evaluate": ["evaluate", road.head, path],
            "split": ["split", path, "-o", out],
            "convert": ["convert", path, "-o", out],
            "predict": ["predict", road.head, path, "-o", f"{out}.csv"],
        },
        "partition": {
            "local-stats": ["local-stats", road.train, "--partition", path, "--head", "linear",
                            "-o", out],
            "plot": ["plot", "partition", path, "-o", f"{out}.png"],
        },
        "statistics": {
            "aggregate": ["aggregate", path, "-o", out],
            "add": ["aggregate", road.total, path, "-o", out],
            "subtract": ["aggregate", road.total, "--subtract", path, "-o", out],
            "solve": ["solve", path, "-o", out],
            "validate": ["solve", road.total, "--validate", path, "-o", out],
        },
        "head": {
            "local-stats": ["local-stats", road.train, "--client", "a", "--head", path, "-o", out],
            "solve": ["solve", road.total, "--head", path, "-o", out],
            "evaluate": ["evaluate", path, road.test],
            "against": ["evaluate", road.head, road.test, "--against", path],
            "predict": ["predict", path, road.test, "-o", f"{out}.csv"],
            "calibrate": ["calibrate", path, road.total, "-o", out],
        },
    }[kind] | {"info": ["info", path], "verify": ["verify", path]}  # fmt: skip


def nothing_at(out):
    """Neither a file nor an unfinished one; a folder of client files may have been made."""
    assert not out.is_file()
    assert not outputs.partial_path(out).exists()
    assert not out.is_dir() or not list(out.iterdir())


# ---------------------------------------------------------------- damage, readers


def attribute(name, value):
    """Damage that sets an attribute of the file; None removes it."""

    def make(whole, path):
        path.write_bytes(whole.read_bytes())
        with h5py.File(path, "r+") as file:
            del file.attrs[name]
            if value is not None:
                file.attrs[name] = value

    return make


def foreign(whole, path):
    with h5py.File(path, "w") as file:
        file["features"] = np.zeros((3, 2))


#: Ways to be wrong: how a file is made of a whole one, and what is said.
DAMAGES = {
    "missing": (lambda whole, path: None, "there is no file"),
    "text": (lambda whole, path: path.write_text("row,client\n1,2\n" * 100), "expected HDF5"),
    "foreign": (foreign, "is not an afltool file: its kind is None"),
    "empty": (lambda whole, path: path.touch(), "found 0 bytes"),
    **{
        f"cut at {size}": (lambda whole, path, n=size: cut(whole, path, n), "damaged")
        for size in (-1, 1000)
    },
    "header": (lambda w, path: flip(w, path, middle_of(w, "header")), "make it or fetch it again"),
    "incomplete": (attribute("complete", None), "is not complete"),
    "future": (attribute("afltool_version", 2), "has format version 2; this afltool reads version"),
}


HUGE = 10**12
#: Datasets of which nothing is written that claim a million million rows, and other numbers under
#: right checksums, of which only the digest tells.
CLAIMS = {
    "features": {"features": ((HUGE, 8), "<i2"), "labels": ((HUGE,), "<i8")},
    "partition": {"client": ((HUGE,), "<i4")},
    "statistics": {"arrays__gram": ((HUGE,), "<i4")},
    "head": {"arrays__weights": ((HUGE, 4), "<f8")},
}


OTHERS = {
    "features": {"features": np.ones((600, 8), "<i2")},
    "partition": {"client": np.zeros(600, "<i4")},
    "statistics": {"class_counts": [1, 2, 3, 4]},
    "head": {"arrays__weights": np.ones((8, 4))},
}


def test_every_damage_is_refused(road, tmp_path, cli):
    """By one reader; the others have the same opener, as the next test shows."""
    for number, (make, words) in enumerate(DAMAGES.values()):
        path, out = tmp_path / f"{number}.h5", tmp_path / f"out-{number}"
        make(road.total, path)
        refused(cli("aggregate", path, "-o", out), INPUT, path, words)
        nothing_at(out)


@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_refuses_the_deepest_damage_and_a_file_of_another_kind(
    kind, road, tmp_path, cli
):
    """What a command does not read it does not judge: partition reads no features, info no rows."""
    kinds = road.of_each_kind()
    huge = forge(kinds[kind], tmp_path / "huge.h5", **CLAIMS[kind])
    assert huge.stat().st_size < 1e6
    refused(cli("verify", huge), INPUT, huge, "claims the shape (1000000000000")
    forged = forge(kinds[kind], tmp_path / f"{kind}.h5", **OTHERS[kind])
    other = KINDS[KINDS.index(kind) - 1]
    for name in readers(kind, forged, road, tmp_path):
        out = tmp_path / f"out-{name}"
        if kind != "features" or name not in ("info", "partition"):
            done = cli(*readers(kind, forged, road, out)[name])
            refused(done, INPUT, forged, "its content has the digest", "its header says")
        if name not in ("info", "verify"):
            done = cli(*readers(kind, kinds[other], road, out)[name])
            said = f"is a {other} file; expected a {kind} file"
            refused(done, USAGE, kinds[other], said)
        nothing_at(out)


def test_a_wrong_path_of_the_other_commands(tmp_path, cli):
    for args in (
        ["import", tmp_path / "no.npz", "-o", tmp_path / "o.h5"],
        ["import", tmp_path / "no.npy", "--labels", tmp_path / "y.txt", "-o", tmp_path / "o.h5"],
        ["merge", tmp_path / "no.h5", "-o", tmp_path / "o.h5"],
        ["extract", "--backbone", "resnet18", "--data", f"imagefolder:{tmp_path}/no",
         "-o", tmp_path / "o.h5"],
        ["run", tmp_path / "no.toml", "-o", tmp_path / "o.h5"],
        ["evaluate", tmp_path / "no.h5", tmp_path / "no-either.h5"],
    ):  # fmt: skip
        refused(cli(*args), INPUT, tmp_path / "no")
        nothing_at(tmp_path / "o.h5")


def test_an_unfinished_file_among_the_clients(road, tmp_path, cli):
    stats, out = tmp_path / "stats", tmp_path / "total.h5"
    stats.mkdir()
    for path in road.stats.iterdir():
        os.link(path, stats / path.name)
    (stats / "client-5.h5").unlink()
    assert unfinished(stats / "client-5.h5").exists()
    done = cli("aggregate", stats, "-o", out)
    refused(done, INPUT, "1 files are unfinished", "client-5.h5.partial", "again")
    refused(cli("aggregate", *stats.iterdir(), "-o", out), INPUT, "client-5.h5.partial")
    nothing_at(out)


# ---------------------------------------------------------------- numbers that cannot be used


def rows_with(value, row=4500, column=3, n=5000):
    """x, y of 5,000 rows, more than one block, with one entry replaced."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 5)), rng.integers(0, 3, n)
    x[row, column] = value
    return x, y


X, Y = rows_with(0.0)
BEYOND = "±63.998"
TWO = {"x": np.ones((2, 2)), "y": np.arange(2)}
#: Arrays of an archive, options of import, and what is said of them.
UNUSABLE = [
    ({"x": rows_with(np.nan)[0], "y": Y}, [], ["row 4500, feature 3 is nan", "must be finite"]),
    ({"x": rows_with(-np.inf)[0], "y": Y}, ["--dtype", "float32"], ["feature 3 is -inf"]),
    *(
        ({"x": rows_with(value)[0], "y": Y}, [],
         [f"row 4500, feature 3 is {value:.6g}", BEYOND, f"--fraction-bits {bits} would hold it"])
        for value, bits in ((64.5, 8), (-300.0, 6), (32767.2, 0))
    ),
    ({"x": rows_with(1e39)[0], "y": Y}, [], ["is 1e+39", "--dtype float32"]),
    ({"x": rows_with(1e39)[0], "y": Y}, ["--dtype", "float32"], ["beyond the range of float32"]),
    *(
        ({"x": X, "y": np.where(np.arange(5000) == 4321, label, Y)}, ["--classes", "classes.txt"],
         [f"row 4321 has the label {label}", "3 classes", "from 0 to 2", "1 rows are outside"])
        for label in (3, -1)
    ),
    ({"x": X, "y": np.where(np.arange(5000) == 7, "ant", Y.astype(str))},
     ["--classes", "classes.txt"], ["row 7 has the label ant"]),
    ({"x": X, "y": Y.astype(float)}, [], ["labels are integers or names"]),
    ({"x": X, "y": Y[:-1]}, [], ["5000 rows need 5000 labels; found shape (4999,)"]),
    ({"x": np.zeros((0, 5)), "y": np.zeros(0, int)}, [], ["found shape (0, 5)"]),
    ({"x": np.ones((5, 2)), "y": np.array(["a"] * 5)}, [], ["at least two classes, found 1 (a)"]),
    ({"z": np.ones((5, 2))}, [], ["has the arrays z; expected x (n, d) and y (n,)"]),
    ({"x": np.array([[None]]), "y": np.zeros(1, int)}, [], ["cannot be read"]),
    ({**TWO, "row_ids": ["a", "a"]}, [], ["1 repeat"]),
    ({**TWO, "row_ids": ["a", "b\nc"]}, [], ["one line each"]),
    ({**TWO, "row_ids": ["a", "\ud800"]}, [], ["not Unicode text"]),
]  # fmt: skip


def test_embeddings_that_cannot_be_used(tmp_path, cli, monkeypatch):
    """Numbers, labels, shapes, row ids; and what is advised for a value beyond the range works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("0\n1\n2\n")
    for arrays, options, said in UNUSABLE:
        np.savez("e.npz", **arrays)
        refused(cli("import", "e.npz", *options, "-o", "o.h5"), INPUT, "e.npz", *said)
        nothing_at(tmp_path / "o.h5")
    np.savez("e.npz", x=rows_with(64.5)[0], y=Y)
    for more in (["--fraction-bits", 8], ["--dtype", "float32"]):
        assert cli("import", "e.npz", *more, "-o", f"{more[1]}.h5").exit_code == 0


def test_damaged_embeddings(road, tmp_path, cli):
    """A cut, a flipped byte and another format; the campaign has many more."""
    size, out = road.embeddings.stat().st_size, tmp_path / "o.h5"
    for path in (
        cut(road.embeddings, tmp_path / "half.npz", size // 2),
        flip(road.embeddings, tmp_path / "flipped.npz", 5000),
        cut(road.total, tmp_path / "hdf5.npz", 10**6),
    ):
        refused(cli("import", path, "-o", out), INPUT, path, "cannot be read")
    nothing_at(out)


def test_a_total_of_no_rows_and_of_too_few(road, tmp_path, cli):
    few = afltool.import_embeddings(embeddings(tmp_path / "few.npz", 5), tmp_path / "few.h5")
    dealt = afltool.partition(few, tmp_path / "c.h5", scheme="iid", clients=8)
    empty = afltool.info(dealt)["rows_per_client"].index(0)
    none = {"ridge": 0}
    stats = afltool.local_stats(few, "linear", tmp_path / "s", partition=dealt, head_options=none)
    out = tmp_path / "h.h5"
    refused(cli("solve", stats / f"client-{empty}.h5", "-o", out), INPUT, "has 0 rows")
    total = afltool.aggregate([stats], tmp_path / "t.h5")
    refused(
        cli("solve", total, "-o", out), NUMERICAL, "5 rows are fewer than 8 features",
        "rank 5 of 8", "--ridge", "--min-norm",
    )  # fmt: skip
    nothing_at(out)


# ---------------------------------------------------------------- numbers without an answer


SCALES = np.array([1e38, 1e-38, 1.0, 1e20, 1e-20, 1e10])
HARD = {  # rows of six features, from random ones
    "all zero": lambda X: 0.0 * X,
    "one number": lambda X: 0.0 * X + 3.7,
    "near float32's end": lambda X: np.clip(1.5e38 * X, -3.3e38, 3.3e38),
    "of very different size": lambda X: X * SCALES,
    "far from 0": lambda X: 1e6 + 1e-2 * X,
}
SOLVED = {
    "min-norm": ("linear", {"min_norm": True}),
    "auto centred": ("linear", {"ridge": "auto", "intercept": True}),
    "path": ("linear", {"ridge": "1e-3:1e3:5"}),
    "ridge": ("linear", {"ridge": 1e-300, "intercept": True, "standardize": True}),
    "qda": ("discriminant", {"rule": "qda", "shrinkage": 0.5}),
    "random-features": ("random-features", {"width": 16, "ridge": "auto"}),
}


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    """Feature files by what is hard about their rows."""
    at, X = tmp_path_factory.mktemp("hard"), np.random.default_rng(0).normal(size=(60, 6))
    found = {}
    for i, (name, change) in enumerate(HARD.items()):
        np.savez(at / f"{i}.npz", x=change(X), y=np.arange(60) % 3)
        rows, out = at / f"{i}.npz", at / f"{i}.h5"  # float32 makes some of them constant
        found[name] = afltool.import_embeddings(rows, out, dtype="float32", allow_constant=True)
    return found


@pytest.mark.parametrize("solved", SOLVED)
def test_a_solve_has_finite_figures_or_a_message(solved, hard, tmp_path, cli):
    """No warning of NumPy or SciPy, which fails a test here, and no NaN in a header."""
    name, options = SOLVED[solved]
    for number, rows in enumerate(hard.values()):
        total, head = tmp_path / f"t{number}.h5", tmp_path / f"h{number}.h5"
        afltool.local_stats(rows, name, total, head_options=options, client="a", sum=True)
        done = cli("solve", total, "-o", head)
        if done.exit_code:
            refused(done, NUMERICAL, "error:")
            nothing_at(head)
            continue
        with h5py.File(head) as file:
            json.loads(bytes(file["header"][()]), parse_constant=pytest.fail)
        assert np.isfinite(afltool.evaluate(head, rows)["top1"])
        if (solved, number) == ("min-norm", 0):  # of nothing: weights of 0 solve it
            report = afltool.info(head)["report"]
            assert (report["rank"], report["degrees_of_freedom"]) == (0, 0.0)


def test_no_header_and_no_json_takes_a_number_that_is_not_finite(tmp_path):
    said = "a result that is not a finite number is not written"
    for number in (float("nan"), float("inf")):
        value = {"report": {"rounds": [{"ok": 1.0}, {"error": number}]}}
        for write in (canonical_json, escape_json, lambda v: write_json(v, tmp_path / "x.json")):
            with pytest.raises(NumericalError, match=said):
                write(value)
    nothing_at(tmp_path / "x.json")


# ---------------------------------------------------------------- what does not belong together


def loaded(path):
    with np.load(path) as arrays:
        return dict(arrays)


def test_a_partition_of_other_rows(road, tmp_path, cli):
    out = tmp_path / "o.h5"
    fewer = afltool.partition(road.test, tmp_path / "fewer.h5", scheme="iid", clients=3)
    arrays = loaded(road.embeddings)
    y = arrays["y"].copy()
    y[5] = (y[5] + 1) % 4
    np.savez(tmp_path / "y.npz", x=arrays["x"], y=y)
    np.savez(tmp_path / "ids.npz", **arrays, row_ids=[f"other/{i:03d}" for i in range(600)])
    cases = {fewer: "200 rows of 4 classes", "y": "600 rows", "ids": "600 rows of 4 classes"}
    for case, what in cases.items():
        if isinstance(case, str):
            features = afltool.import_embeddings(tmp_path / f"{case}.npz", tmp_path / f"{case}.h5")
            case = afltool.partition(features, tmp_path / f"{case}-c.h5", scheme="iid", clients=3)
        done = cli("local-stats", road.train, "--partition", case, "--head", "linear", "-o", out)
        refused(done, MISMATCH, case, "is of other rows, labels or classes than", road.train, what)
        nothing_at(out)


# ---------------------------------------------------------------- disks


STAGES = ("import", "partition", "head", "local-stats", "aggregate", "solve")


def writers(road, out):
    """The commands that write one file from others, with about how many bytes they write."""
    return {
        "import": ["import", road.embeddings, "-o", out],
        "partition": ["partition", road.train, "--scheme", "iid", "--clients", 3, "-o", out],
        "head": ["head", "linear", "-o", out],
        "local-stats": ["local-stats", road.train, "--head", road.head0,
                        "--partition", road.clients, "--sum", "-o", out],
        "aggregate": ["aggregate", road.stats, "-o", out],
        "solve": ["solve", road.total, "-o", out],
    }  # fmt: skip


@pytest.mark.parametrize("stage", ["import", "aggregate"])
def test_no_space_left(stage, road, small_disk, tmp_path, cli):
    filler, out = fill(small_disk, leave=2048), small_disk / "o.h5"
    refused(cli(*writers(road, out)[stage]), INPUT, out, "no space left", "free some space")
    assert [p.name for p in small_disk.iterdir()] == ["filler"]
    filler.unlink()
    elsewhere = tmp_path / "elsewhere.h5"
    for place in (out, elsewhere):
        assert cli(*writers(road, place)[stage]).exit_code == 0
    assert afltool.verify(out)["digest"] == afltool.verify(elsewhere)["digest"]


def test_no_space_left_in_the_installed_command(road, small_disk):
    """A real disk that is full: the HDF5 library must not complain on its own at exit."""
    fill(small_disk, leave=12288)
    done = installed("import", road.embeddings, "-o", small_disk / "o.h5")
    refused(done, INPUT, "no space left", small_disk / "o.h5")
    assert len(re.findall("^(?!import: rounding)", done.stderr.strip(), re.M)) == 1
    assert [p.name for p in small_disk.iterdir()] == ["filler"]


@pytest.fixture
def read_only(tmp_path):
    """A folder that nobody may write into, root neither: a read-only bind mount."""
    place = tmp_path / "read-only"
    place.mkdir()
    if os.geteuid() != 0:
        place.chmod(0o555)
        yield place
        place.chmod(0o755)
        return
    again = ["mount", "-o", "remount,ro,bind", str(place)]
    if subprocess.run(
        ["mount", "--bind", place, place], check=False, capture_output=True
    ).returncode:
        pytest.skip("root may write anywhere here, and may not mount")
    subprocess.run(again, check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_read_only_folder_and_an_output_below_a_file(road, read_only, tmp_path, cli):
    for out in (read_only / "o.h5", read_only / "new" / "o.h5"):
        done = cli(*writers(road, out)["import"])
        refused(done, INPUT, out, "read-only?", "choose another one with -o")
    dealt = ["--partition", road.clients, "--head", road.head0]
    refused(cli("local-stats", road.train, *dealt, "-o", read_only / "s"), INPUT, read_only / "s")
    features = ["--train-features", road.train, "--test-features", road.test]
    refused(cli("run", *features, "--clients", 3, "-o", read_only / "r"), INPUT, read_only / "r")
    assert not list(read_only.iterdir())
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file" / "o.h5", tmp_path / "file" / "deep" / "o.h5"):
        said = "this path has a file where a folder should be"
        refused(cli(*writers(road, out)["aggregate"]), INPUT, out, said)
    assert (tmp_path / "file").read_text() == "in the way"


# ---------------------------------------------------------------- outputs that are there


@pytest.mark.parametrize("stage", STAGES)
def test_an_equal_output_is_kept_and_another_is_refused(stage, road, tmp_path, cli):
    out = tmp_path / "o.h5"
    args = writers(road, out)[stage]
    assert cli(*args).exit_code == 0
    os.utime(out, ns=(10**18, 10**18))
    bytes_before = out.read_bytes()
    again = cli(*args)
    assert (again.exit_code, again.stdout) == (0, f"{out}\n")
    assert out.stat().st_mtime_ns == 10**18
    different = {
        "import": [*args, "--fraction-bits", 8],
        "partition": [*args, "--seed", 1],
        "head": [*args, "--intercept"],
        "local-stats": [*args, "--only", "0-3"],
        "aggregate": ["aggregate", *sorted(road.stats.iterdir())[1:], "-o", out],
        "solve": [*args, "--ridge", 0.5],
    }[stage]
    done = cli(*different)
    refused(done, USAGE, out, "exists and was made differently", "--overwrite")
    assert (out.stat().st_mtime_ns, out.read_bytes()) == (10**18, bytes_before)
    assert cli(*different, "--overwrite").exit_code == 0
    assert out.read_bytes() != bytes_before
    assert afltool.verify(out)["intact"]


def test_client_files_that_are_there_are_kept(road, tmp_path, cli):
    stats = tmp_path / "stats"
    dealt = ["--partition", road.clients, "--head", road.head0, "-o", stats]
    assert cli("local-stats", road.train, *dealt, "--only", "0-2").exit_code == 0
    for path in stats.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    assert cli("local-stats", road.train, *dealt).exit_code == 0
    kept = [p.name for p in sorted(stats.iterdir()) if p.stat().st_mtime_ns == 10**18]
    assert kept == ["client-0.h5", "client-1.h5", "client-2.h5"]
    assert len(list(stats.iterdir())) == 6
    other = ["--partition", road.clients, "--head", "linear", "--intercept", "-o", stats]
    done = cli("local-stats", road.train, *other)
    refused(done, USAGE, stats / "client-0.h5", "was made differently", "inputs.head")


def test_an_output_that_is_damaged_is_not_overwritten_unasked(road, tmp_path, cli):
    out = tmp_path / "o.h5"
    args = ["aggregate", road.stats, "-o", out]
    for damage, how in ((cut, -1), (flip, middle_of(road.total, "arrays/gram"))):
        content = damage(road.total, out, how).read_bytes()
        said = "exists and is not usable", "remove it or use --overwrite"
        refused(cli(*args), INPUT, out, *said)
        assert out.read_bytes() == content
    assert cli(*args, "--overwrite").exit_code == 0
    assert afltool.info(out)["digest"] == afltool.info(road.total)["digest"]
