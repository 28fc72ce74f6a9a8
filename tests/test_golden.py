"""Files that 0.2.0, 0.3.0 and the last version before 0.4 made by their own commands.

tests/golden/make.py made the archives.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import afltool

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("0.2.0", "0.3.0", "0.3.0-262611b")
FORMAT = "--compute"
APART = ("linear", "lda", "deepafl-fixed")


@pytest.fixture(scope="module", params=VERSIONS)
def archive(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / f"afltool-{request.param}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        tar.extractall(folder)
    return folder


@pytest.fixture
def old(archive, monkeypatch):
    """The archive's folder, which is read only here and in which its relative paths hold."""
    monkeypatch.chdir(archive)
    return archive


def said(cli, *words):
    done = cli(*words)
    assert done.exit_code == 0, (words, done.stderr)
    return json.loads(done.stdout) if "--json" in words else done.stdout


def kept(path):
    return json.loads((Path(path)).read_text())


def hashes(folder, pattern="*"):
    """SHA-256 of every file's bytes, by its path."""
    files = sorted(path for path in Path(folder).rglob(pattern) if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_every_file_is_intact_and_has_its_digest_and_its_recipe(old, cli):
    expected = kept("info.json")
    kinds = {one["kind"] for one in expected.values()}
    assert kinds >= {"features", "partition", "statistics", "head"}
    said(cli, "verify", *expected)
    for path, before in expected.items():
        now = said(cli, "info", path, "--json")
        for key in ("kind", "digest", "recipe"):
            assert now.get(key) == before.get(key), (path, key)


def test_solved_heads_predict_what_their_version_said(old, cli, tmp_path):
    expected = kept("evaluated.json")
    assert len(expected) >= 16
    for path, before in expected.items():
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


def test_features_of_images_say_how_files_became_pixels(old, cli):
    """A space has no entry for it: older ones mean the same."""
    for path in old.rglob("*.h5"):
        info = afltool.info(path)
        if info["kind"] == "features":
            assert ("images" in info) == (info["space"]["preprocessing"] is not None)
            assert ("EXIF orientation" in cli("info", path).stdout) == ("images" in info)


def test_no_command_makes_its_output_again(archive, cli, tmp_path, monkeypatch):
    """The recipes of old files are those that the same commands have today."""
    shutil.copytree(archive, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFLTOOL_STORE", "store")
    before = hashes(tmp_path, "*.h5")
    for words in kept("commands.json"):
        if words[:2] in (["head", "random-features"], ["head", "deepafl"]) and FORMAT not in words:
            words += [FORMAT, "float32"]  # what was meant where none was given
        if words[0] == "extract":
            words += ["--preprocess", "paper"]
        said(cli, *words)
        assert hashes(tmp_path, "*.h5") == before, words


@pytest.mark.parametrize("name", APART)
def test_old_sums_and_new_ones_are_the_same_and_add_up(old, cli, tmp_path, name):
    said(cli, "local-stats", "train.h5", "--partition", "clients.h5", "--head",
         f"heads/{name}-0.h5", "-o", tmp_path / "new")  # fmt: skip
    before = {path.name: digest(cli, path) for path in sorted(Path(f"stats/{name}-1").iterdir())}
    assert {path.name: digest(cli, path) for path in sorted((tmp_path / "new").iterdir())} == before
    mixed = [f"stats/{name}-1/client-0.h5", *(tmp_path / f"new/client-{i}.h5" for i in (1, 2))]
    said(cli, "aggregate", *mixed, "-o", tmp_path / "total.h5")
    assert digest(cli, tmp_path / "total.h5") == digest(cli, f"totals/{name}-1.h5")


def digest(cli, path):
    return said(cli, "info", path, "--json")["digest"]


@pytest.mark.parametrize(
    "missing", [("06-",), ("05-head-3", "06-"), ("04-total-3", "05-head-3", "06-")]
)
def test_an_old_run_is_gone_on_with(archive, cli, tmp_path, monkeypatch, missing):
    shutil.copytree(archive, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    expected = kept("run/06-metrics.json")
    for path in Path("run").iterdir():
        if path.name.startswith(missing):
            path.unlink()
    before = hashes(Path("run"), "0*.h5")
    said(cli, "run", "run.toml", "-o", "run")
    now = kept("run/06-metrics.json")
    assert (now["top1"], now["confusion"]) == (expected["top1"], expected["confusion"])
    after = hashes(Path("run"), "0*.h5")
    assert {name: after[name] for name in before} == before


def test_finished_cells_of_an_old_study_stay(archive, cli, tmp_path, monkeypatch):
    shutil.copytree(archive, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    cells = sorted(path for path in Path("study/cells").iterdir() if path.is_dir())
    assert len(cells) == 4
    before = hashes(Path("study/cells"))
    said(cli, "study", "study.toml", "-o", "study")
    assert hashes(Path("study/cells")) == before
    assert "100.00" in said(cli, "table", "study")
