"""Files of 0.1.0 to 0.3.0 are read, added, solved and gone on with; what sessions sent is not.
tests/golden/make.py made the archives with the commands of each version."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from damage import forge

import afltool

GOLDEN = Path(__file__).parent / "golden"


def unpacked(name, folder):
    with tarfile.open(GOLDEN / name) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        tar.extractall(folder)
    return folder


@pytest.fixture(scope="module", params=("0.2.0", "0.3.0"))
def archive(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / request.param
    return unpacked(f"afltool-{request.param}.tar.xz", folder)


def is_its_own(archive, what):
    """Whether a file, or a command's, is not that of the other archive: 0.2 had other deepafl."""
    return archive.name == "0.3.0" or "deepafl" in what or "run" in what


@pytest.fixture
def old(archive, monkeypatch):
    """The archive's folder, which is read only here and in which its relative paths hold."""
    monkeypatch.chdir(archive)
    return archive


@pytest.fixture
def mine(archive, tmp_path, monkeypatch):
    """A copy of it, to go on with."""
    shutil.copytree(archive, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(cli, *words):
    done = cli(*words)
    assert done.exit_code == 0, (words, done.stderr)
    return json.loads(done.stdout) if "--json" in words else done.stdout


def kept(path):
    return json.loads((Path(path)).read_text())


def hashes(folder, pattern="*"):
    """SHA-256 of every file's bytes, by its path."""
    files = sorted(path for path in Path(folder).rglob(pattern) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def digest(path):
    return afltool.info(path)["digest"]


def test_every_file_is_intact_and_has_its_digest_and_its_recipe(old):
    """Files of images say how these became pixels; older spaces, which do not, mean the same."""
    expected = kept("info.json")
    assert {one["kind"] for one in expected.values()} >= {"features", "statistics", "head"}
    for path, before in expected.items():
        now = afltool.info(path)
        for key in ("kind", "digest", "recipe"):
            assert now.get(key) == before.get(key), (path, key)
        if now["kind"] == "features":
            assert afltool.verify(path)["digest"] == now["digest"]
            assert ("images" in now) == (now["space"]["preprocessing"] is not None)


def test_solved_heads_predict_what_their_version_said(old, cli, tmp_path):
    expected = kept("evaluated.json")
    assert len(expected) >= 16
    for path, before in ((k, v) for k, v in expected.items() if is_its_own(old, k)):
        now = said(cli, "evaluate", path, "test.h5", "--json")
        assert (now["top1"], now["confusion"]) == (before["top1"], before["confusion"]), path
        name = f"{path.removesuffix('.h5').replace('/', '-')}.csv"
        said(cli, "predict", path, "test.h5", "--scores", "-o", tmp_path / name)
        before, now = (scores(folder / name) for folder in (old / "predicted", tmp_path))
        atol = 1e-6 * np.abs(before).max()  # some heads predict in float32
        np.testing.assert_allclose(now, before, rtol=0, atol=atol, err_msg=path)


def scores(path):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(v) for k, v in row.items() if k.startswith("score:")] for row in rows])


def test_no_command_makes_its_output_again(archive, mine, cli, monkeypatch):
    """The recipes of old files are those that the same commands have today."""
    monkeypatch.setenv("AFLTOOL_STORE", "store")
    every = numbers(mine)
    for words in (one for one in kept("commands.json") if is_its_own(archive, " ".join(one))):
        if words[:2] in (["head", "random-features"], ["head", "deepafl"]):
            words += ["--compute", "float32"] * ("--compute" not in words)  # the default of then
        if words[0] == "extract":
            words += ["--preprocess", "paper"]
        said(cli, *words)
    assert numbers(mine) == every


def numbers(folder):
    """The inode of each file, which another file has not; a run's second name of its head apart."""
    files = (path for path in folder.rglob("*.h5") if path.name != "head-final.h5")
    return {path: path.stat().st_ino for path in files}


def test_old_sums_and_new_ones_are_the_same_and_add_up(old, cli, tmp_path):
    for name in ("linear", "lda", "deepafl-fixed"):
        head = f"heads/{name}-0.h5"
        new = afltool.local_stats("train.h5", head, tmp_path / name, partition="clients.h5")
        mixed = mixture(new, Path(f"stats/{name}-1"))
        total = afltool.aggregate(mixed, tmp_path / f"{name}.h5")
        assert digest(total) == digest(f"totals/{name}-1.h5")


def mixture(new, old):
    """Equal files of clients: the first one is old, the others are new."""
    for path in sorted(old.iterdir()):
        assert digest(new / path.name) == digest(path)
    return [old / "client-0.h5", *(new / f"client-{i}.h5" for i in (1, 2))]


def test_an_old_run_is_gone_on_with(mine, cli):
    expected = kept("run/06-metrics.json")
    for missing in (("06-",), ("04-total-3", "05-head-3", "06-")):
        for path in Path("run").iterdir():
            if path.name.startswith(missing):
                path.unlink()
        before = hashes("run", "0*.h5")
        said(cli, "run", "run.toml", "-o", "run")
        now = kept("run/06-metrics.json")
        assert (now["top1"], now["confusion"]) == (expected["top1"], expected["confusion"])
        assert before.items() <= hashes("run", "0*.h5").items()


def test_finished_cells_of_an_old_study_stay(mine, cli):
    before = hashes("study/cells")
    assert len({Path(path).parts[2] for path in before}) == 4
    said(cli, "study", "study.toml", "-o", "study")
    assert hashes("study/cells") == before
    assert "100.00" in said(cli, "table", "study")


# ---------------------------------------------------------------- of 0.1.0


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """48 rows of training and 24 of test, three clients, a head of each kind, and a run."""
    return unpacked("afltool-0.1.0.tar.gz", tmp_path_factory.mktemp("old")) / "v0.1.0"


def test_the_first_version_is_read_added_and_solved(first, tmp_path):
    listed = [line.split() for line in (first / "digests.txt").read_text().splitlines()]
    assert len(listed) == 24
    for name, value in listed:
        assert afltool.verify(first / name)["digest"] == value
    for path in sorted((first / "heads").glob("*.json")):
        expected = kept(path)
        found = afltool.evaluate(path.with_suffix(".h5"), first / "test.h5")
        for key in ("top1", "n", "confusion"):
            assert found[key] == expected[key], path
    new = afltool.local_stats(first / "train.h5", first / "head0.h5", tmp_path / "new",
                              partition=first / "clients.h5")  # fmt: skip
    mixed = mixture(new, first / "stats")
    assert digest(afltool.aggregate(mixed, tmp_path / "t.h5")) == digest(first / "total.h5")
    less = afltool.aggregate([first / "total.h5"], tmp_path / "l.h5", subtract=[mixed[2]])
    assert digest(less) == digest(afltool.aggregate(mixed[:2], tmp_path / "two.h5"))
    head = afltool.solve(first / "total.h5", tmp_path / "head.h5")
    confusion = kept(first / "heads" / "linear.json")["confusion"]
    assert afltool.evaluate(head, first / "test.h5")["confusion"] == confusion


def test_a_run_of_the_first_version_is_gone_on_with(first, cli, tmp_path):
    missing = "04-total-2", "04-total-3", "05-head-", "06-"
    expected = kept(first / "run" / "06-metrics.json")
    for path in (first / "run").iterdir():
        if not path.name.startswith(missing):
            text = path.read_bytes()
            if path.name == "run.toml":
                text = text.replace(b"/data/", f"{first}/".encode())
            (tmp_path / path.name).write_bytes(text)
    said(cli, "run", tmp_path / "run.toml", "-o", tmp_path)
    found = kept(tmp_path / "06-metrics.json")
    assert (found["top1"], found["confusion"]) == (expected["top1"], expected["confusion"])


# ---------------------------------------------------------------- what sessions left


def test_what_sessions_left(cli, road, tmp_path):
    """A total with noise needs a ridge that is given; what a member signed is not read."""
    noisy, head = GOLDEN / "noisy-shared.h5", tmp_path / "head.h5"
    assert afltool.info(noisy)["context"]["noise"]["epsilon"] == 1
    done = cli("solve", noisy, "-o", head)
    assert done.exit_code == 2
    assert "noisy-shared.h5 is a sum with noise: give the ridge of its head" in done.stderr
    assert not head.exists()
    said(cli, "solve", noisy, "--ridge", "1e6", "-o", head)
    assert afltool.info(head)["report"]["ridge"] == 1e6
    signed = forge(min(road.stats.iterdir()), tmp_path / "client.h5", {"seal": {"by": "north"}})
    for words in (["info", signed], ["aggregate", signed, "-o", tmp_path / "x.h5"]):
        done = cli(*words)
        assert done.exit_code == 3
        assert f"{signed} is signed: finish its session" in " ".join(done.stderr.split())
