"""`run` and `slurm` refuse what cannot end well: no image is read, nothing written or printed."""

from __future__ import annotations

import pytest
from helpers_images import write_imagefolder

import afltool


@pytest.fixture
def images(tmp_path):
    write_imagefolder(tmp_path / "images", per_class=2)
    return f"imagefolder:{tmp_path / 'images'}"


WRONG = [
    (["--head", "svm"], 2, "there is no head 'svm'; the heads are linear, "),
    (["--head", "nowhere.h5"], 3, "nowhere.h5"),
    (["--head", "safle", "--buckets", 1], 2, "--buckets is 2 to 256; found 1"),
    (["--head", "linear", "--layers", 3], 2, "No such option: --layers"),
    (["--head-seed", 3], 2, "leave --head-seed out"),
    (["--head", "deepafl", "--incremental", "--participation", 0.5], 2, "the same clients"),
    (["--head", "deepafl", "--full-gram", "--participation", 0.5], 2, "is for --head deepafl"),
    (["--participation", 0.5, "--participation-kind", "inconsistent"], 2, "this linear head has"),
    (["--backbone", "resnet99"], 2, "resnet99"),
    (["--node", "layerX"], 2, "layerX"),
    (["--weights", "nowhere.pth"], 3, "nowhere.pth"),
    (["--weights", "IMAGENET99"], 2, "IMAGENET99"),
    (["--data", "imagefolder:nowhere"], 3, "nowhere"),
    (["--data", "cifar11"], 2, "unknown data set 'cifar11'"),
    (["--scheme", "by-attribute"], 2, "needs --column, --table"),
    (["--scheme", "by-attribute", "--table", "nowhere.csv", "--column", "site"], 3, "nowhere.csv"),
    (["--partition", "nowhere.h5"], 3, "nowhere.h5"),
    (["--partition", "x.h5", "--alpha", 1], 2, "--alpha is for a partition that the run makes"),
    (["--clients", 0], 2, "--clients is 1 to"),
    (["--alpha", "nan"], 2, "found nan"),
    (["--image-size", 10**6], 2, "--image-size is 1 to 4096"),
    (["--weights-seed", 2**70], 2, "--weights-seed is 0 to 2^63 − 1"),
    (["--participation", 0.5, "--participation-seed", -1], 2, "found -1"),
    (["--classes", "c\udcff"], 2, "a TOML file cannot name"),
]


def test_it_is_refused_with_nothing_written(images, tmp_path, cli, monkeypatch):
    for image in (tmp_path / "images").rglob("*.png"):
        image.write_bytes(b"who reads this complains")
    monkeypatch.chdir(tmp_path)
    given = ["--data", images, "--backbone", "resnet18", "--weights", "random"]
    cases = [(["run"], *one) for one in WRONG]
    cases += [(["slurm", *dry], *one) for dry in ([], ["--dry-run"]) for one in WRONG[::8]]
    for command, args, code, message in cases:
        done = cli(*command, *given, *args, "-o", "out")
        assert (done.exit_code, "Traceback" in done.stderr) == (code, False), (args, done.stderr)
        assert message in done.stderr
        assert sorted(p.name for p in tmp_path.iterdir()) == ["images"], args


def test_jobs_that_slurm_would_refuse_are_refused(images, tmp_path, cli):
    given = ["--data", images, "--backbone", "resnet18", "-o", tmp_path / "out"]
    for args, message in (
        (["--time", "0"], "--time is like"),
        (["--memory", "0"], "--memory is like"),
        (["--store", "x"], "--store is for run"),
    ):
        done = cli("slurm", *given, *args)
        assert (done.exit_code, message in done.stderr) == (2, True), args
        assert not (tmp_path / "out").exists()


def test_test_features_that_do_not_fit_are_refused_first(road, tmp_path, cli):
    other = afltool.convert(road.test, tmp_path / "other.h5", fraction_bits=5)
    given = ["--train-features", road.train, "--test-features", other, "--clients", 3]
    done = cli("run", *given, "-o", tmp_path / "run")
    assert done.exit_code == 4
    assert "fraction_bits" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_takes_an_existing_partition_or_a_table(road, tmp_path, cli):
    given = ["--train-features", road.train, "--test-features", road.test]
    drawn = tmp_path / "drawn"
    assert cli("run", *given, "--partition", road.clients, "-o", drawn).exit_code == 0
    digest = afltool.info(road.clients)["digest"]
    assert afltool.info(drawn / "02-clients.h5")["digest"] == digest
    assert cli("run", drawn / "run.toml", "-o", drawn).exit_code == 0

    table, drawing = tmp_path / "table.csv", ["--alpha", 0.5, "--clients", 6]
    assert (
        cli("partition", road.train, *drawing, "-o", road.clients, "--export", table).exit_code == 0
    )
    by = ["--scheme", "by-attribute", "--table", table, "--column", "client"]
    done = cli("run", *given, *by, "-o", tmp_path / "by")
    assert done.exit_code == 0, done.stderr
    total = afltool.info(drawn / "04-total.h5")["digest"]
    assert afltool.info(tmp_path / "by" / "04-total.h5")["digest"] == total


def test_a_quiet_run_says_its_folder_and_nothing_else(road, tmp_path, cli):
    given = ["--train-features", road.train, "--test-features", road.test, "--clients", 3]
    done = cli("-q", "run", *given, "-o", tmp_path / "run")
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'run'}\n", "")
