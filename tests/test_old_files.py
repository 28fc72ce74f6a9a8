"""Files of older versions are read, added, solved and gone on with; what sessions sent is not."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from damage import forge

from afltool.cli.app import RENAMED

GOLDEN = Path(__file__).parent / "golden"
OLD = GOLDEN / "afltool-0.1.0.tar.gz"
HEADS = ("linear", "random-features", "discriminant", "safle", "softmax", "deepafl")


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """48 rows of training and 24 of test, three clients, a head of each kind, and a run."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(OLD) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        tar.extractall(folder)
    return folder / "v0.1.0"


def told(cli, *words):
    done = cli(*words)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def digest(cli, path):
    return told(cli, "info", path, "--json")["digest"]


def test_every_file_is_intact_and_has_the_digest_that_its_version_said(old, cli):
    said = [line.split() for line in (old / "digests.txt").read_text().splitlines()]
    assert len(said) == 24
    told(cli, "verify", *(old / name for name, _ in said))
    assert [digest(cli, old / name) for name, _ in said] == [value for _, value in said]


@pytest.mark.parametrize("name", HEADS)
def test_a_head_has_the_accuracy_that_its_version_said(old, cli, name):
    expected = json.loads((old / "heads" / f"{name}.json").read_text())
    found = told(cli, "evaluate", old / "heads" / f"{name}.h5", old / "test.h5", "--json")
    assert [found[key] for key in ("top1", "n", "confusion")] == [
        expected[key] for key in ("top1", "n", "confusion")
    ]


def test_old_sums_and_new_ones_are_the_same_and_add_up(old, cli, tmp_path):
    told(cli, "local-stats", old / "train.h5", "--partition", old / "clients.h5", "--head",
        old / "head0.h5", "-o", tmp_path / "new")  # fmt: skip
    for one in sorted((old / "stats").iterdir()):
        assert digest(cli, tmp_path / "new" / one.name) == digest(cli, one)
    mixed = [old / "stats" / "client-0.h5", *(tmp_path / "new" / f"client-{i}.h5" for i in (1, 2))]
    told(cli, "aggregate", *mixed, "-o", tmp_path / "total.h5")
    assert digest(cli, tmp_path / "total.h5") == digest(cli, old / "total.h5")
    told(cli, "aggregate", old / "total.h5", "--subtract", tmp_path / "new" / "client-2.h5", "-o",
        tmp_path / "less.h5")  # fmt: skip
    told(cli, "aggregate", *mixed[:2], "-o", tmp_path / "two.h5")
    assert digest(cli, tmp_path / "less.h5") == digest(cli, tmp_path / "two.h5")
    told(cli, "solve", old / "total.h5", "-o", tmp_path / "head.h5")
    found = told(cli, "evaluate", tmp_path / "head.h5", old / "test.h5", "--json")
    assert (
        found["confusion"] == json.loads((old / "heads" / "linear.json").read_text())["confusion"]
    )


def gone_on(old, cli, folder, missing):
    """The metrics of the old run, in a copy without the files whose names begin so."""
    for path in (old / "run").iterdir():
        if not path.name.startswith(missing):
            text = path.read_bytes()
            if path.name == "run.toml":
                text = text.replace(b"/data/", f"{old}/".encode())
            (folder / path.name).write_bytes(text)
    told(cli, "run", folder / "run.toml", "-o", folder)
    return json.loads((folder / "06-metrics.json").read_text())


@pytest.mark.parametrize(
    "missing",
    ["nothing", "06-", ("05-head-3", "06-"), ("04-total-2", "04-total-3", "05-head-", "06-")],
)
def test_an_old_run_is_gone_on_with(old, cli, tmp_path, missing):
    expected = json.loads((old / "run" / "06-metrics.json").read_text())
    found = gone_on(old, cli, tmp_path, missing)
    assert (found["top1"], found["confusion"]) == (expected["top1"], expected["confusion"])


# ---------------------------------------------------------------- what sessions left


def test_an_old_total_with_noise_is_solved_with_a_ridge_that_is_given(cli, tmp_path):
    noisy = GOLDEN / "noisy-shared.h5"
    assert told(cli, "info", noisy, "--json")["context"]["noise"]["epsilon"] == 1
    done = cli("solve", noisy, "-o", tmp_path / "head.h5")
    assert done.exit_code == 2
    assert "noisy-shared.h5 is a sum with noise: give the ridge of its head" in done.stderr
    assert not (tmp_path / "head.h5").exists()
    told(cli, "solve", noisy, "--ridge", "1e6", "-o", tmp_path / "head.h5")
    assert told(cli, "info", tmp_path / "head.h5", "--json")["report"]["ridge"] == 1e6


@pytest.mark.parametrize("command", ["info", "verify", "aggregate", "solve"])
def test_what_a_member_signed_in_a_session_is_not_read_without_it(cli, road, tmp_path, command):
    path, one = tmp_path / "client.h5", next(iter(sorted(road.stats.iterdir())))
    forge(one, path, {"seal": {"by": "north"}})
    out = ["-o", tmp_path / "x.h5"] if command in ("aggregate", "solve") else []
    done = cli(command, path, *out)
    assert done.exit_code == 3
    assert f"{path} is signed: finish its session" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (command, option)
        for command, options in {
            "local-stats": "mask sign roster again dp-epsilon dp-delta clip passphrase-file",
            "aggregate": "roster offers key reveal check passphrase-file",
            "scale": "mask sign roster",
            "evaluate": "mask sign roster dp-epsilon",
        }.items()
        for option in options.split()
    ],
)
def test_options_of_protection_are_unknown(cli, road, tmp_path, command, option):
    """One that is accepted and does nothing would leave what it promises to protect open."""
    words = {
        "local-stats": ["local-stats", road.train, "--head", "linear", "--client", "a"],
        "aggregate": ["aggregate", road.stats],
        "scale": ["scale", road.train],
        "evaluate": ["evaluate", road.head, road.test, "--counts"],
    }
    done = cli(*words[command], f"--{option}", "1", "-o", tmp_path / "out")
    assert done.exit_code == 2
    said = RENAMED.get(f"--{option}", f"No such option: --{option}")
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()
