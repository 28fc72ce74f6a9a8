"""info says what a file holds and how it is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
from damage import forge

import afltool
from afltool.errors import CorruptFileError, InvalidDataError
from afltool.files import differences, headers
from afltool.show import brief
from afltool.stages import inspect


@pytest.fixture(scope="module")
def silo(tmp_path_factory):
    """5 rows of 8 features: one class has a single row, one has none."""
    folder = tmp_path_factory.mktemp("silo")
    x = np.random.default_rng(0).integers(-40, 40, size=(5, 8)) / 8.0
    np.savez(folder / "x.npz", x=x, y=np.array([0, 0, 1, 3, 3]))
    return afltool.import_embeddings(folder / "x.npz", folder / "x.h5"), x


def test_few_rows_are_kept_back_when_asked(silo, tmp_path):
    path, _ = silo
    with pytest.raises(
        InvalidDataError, match=r"1 of 1 clients have fewer than 6 rows.*'A' with 5"
    ):
        afltool.local_stats(path, "linear", tmp_path / "s.h5", client="A", sum=True, min_rows=6)
    assert not (tmp_path / "s.h5").exists()
    afltool.local_stats(path, "linear", tmp_path / "s.h5", client="A", sum=True, min_rows=5)


def test_info_of_every_kind_is_json(silo, tmp_path):
    path, _ = silo
    clients = afltool.partition(path, tmp_path / "c.h5", scheme="iid", clients=2)
    stats = afltool.local_stats(path, "linear", tmp_path / "s.h5", partition=clients, sum=True)
    head = afltool.solve(stats, tmp_path / "h.h5", head_options={"ridge": "auto"})
    for file in (path, clients, stats, head):
        found = json.loads(json.dumps(afltool.info(file), allow_nan=False))
        assert len(found["digest"]) == 64
        assert found["bytes"] == file.stat().st_size
    assert afltool.info(head)["phase"] is None
    assert afltool.info(stats)["gammas"] == {"0": 2}


def test_info_checks_what_it_tells(road, tmp_path):
    """Counts of another digest, all checksums of HDF5 right: refused, where they were shown."""
    for kind, arrays in {
        "statistics": {"class_counts": [1, 2, 3, 4]},
        "head": {"arrays__weights": np.ones((8, 4))},
        "partition": {"client": np.zeros(600, "<i4")},
    }.items():
        path = forge(road.of_each_kind()[kind], tmp_path / f"{kind}.h5", **arrays)
        with pytest.raises(CorruptFileError, match="its content has the digest"):
            afltool.info(path)
        assert afltool.info(road.of_each_kind()[kind])["checked"] == "all"
    assert afltool.info(road.train)["checked"].startswith("header only; afltool verify")


def test_verify_goes_on_after_a_damaged_file_when_asked(road, tmp_path, cli):
    broken = tmp_path / "broken.h5"
    broken.write_bytes(road.total.read_bytes()[:-7])
    files = [road.total, broken, tmp_path / "none.h5", road.head]
    done = cli("verify", *files)
    assert (done.exit_code, done.stdout) == (3, "")
    done = cli("verify", *files, "--keep-going")
    assert done.exit_code == 3
    intact = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert intact == [str(road.total), str(road.head)]
    assert str(broken) in done.stderr
    assert "2 of 4 files cannot be used" in done.stderr
    found = json.loads(cli("verify", *files, "--keep-going", "--json").stdout)
    assert [one["intact"] for one in found] == [True, False, False, True]


def test_statistics_say_nothing_of_the_site(road, tmp_path):
    """No absolute path, host name, user or time in any byte of what a client sends."""
    import getpass
    import platform

    from afltool.files.hdf5 import read_header

    one = sorted(road.stats.iterdir())[0]
    head1 = tmp_path / "deep" / "head0.h5"
    afltool.head("linear", head1)
    sent = afltool.local_stats(road.train, head1, tmp_path / "silo.h5", client="a", sum=True)
    for path in (one, sent):
        provenance = read_header(path, "statistics")["provenance"]
        assert not {"time", "host", "user"} & provenance.keys()
        text = json.dumps(read_header(path))
        for secret in (str(road.folder), str(tmp_path), platform.node(), getpass.getuser()):
            assert secret not in text
    assert read_header(sent)["provenance"]["seconds"] is None


# ---------------------------------------------------------------- at first sight


@pytest.fixture
def shown(cli, monkeypatch):
    """The lines of info on a terminal of 80 columns, by their names."""
    monkeypatch.setenv("COLUMNS", "80")

    def look(*args):
        lines = cli("info", *args).stdout.splitlines()
        return {line.split(" ")[0]: line for line in lines if not line.startswith(" ")}, lines

    return look


def test_info_is_short_and_the_digest_is_on_one_line(road, shown):
    for kind, path in road.of_each_kind().items():
        by_name, lines = shown(path)
        assert len(lines) <= 10, kind
        assert afltool.info(path)["digest"] in by_name["digest"].split()
        assert kind in by_name["kind"]
        assert {"rows", "classes"} <= by_name.keys(), kind
        assert not any("provenance" in line for line in lines)
        assert "header only" in by_name.get("checked", "header only")
        everything, more = shown(path, "--all")
        assert len(more) > len(lines)
        assert {"recipe.stage", "provenance.numpy", "bytes", "path"} <= everything.keys()


def test_what_is_said_at_first_sight(road, silo, shown, tmp_path):
    one = afltool.local_stats(silo[0], "linear", tmp_path / "s.h5", client="Süd", sum=True)
    said, _ = shown(one)
    assert said["clients"].split() == ["clients", "1:", "Süd"]
    said, _ = shown(road.total)
    assert said["clients"].split() == ["clients", "6:", *["0,", "1,", "2,", "3,", "4,", "5"]]
    said, _ = shown(road.clients)
    sizes = afltool.info(road.clients)["rows_per_client"]
    assert f"{min(sizes)} to {max(sizes)} rows each" in said["clients"]
    assert "dirichlet, alpha 0.5" in said["scheme"]
    said, _ = shown(road.head)
    assert ("solved" in said["head"], said["clients"].split()[1]) == (True, "6")
    assert said["ridge"].split()[:2] == ["ridge", "0"]
    said, _ = shown(road.head0)
    assert "next phase gram" in said["head"]


def test_a_chosen_ridge_is_said(road, shown, tmp_path):
    head = afltool.solve(road.total, tmp_path / "h.h5", head_options={"ridge": "auto"})
    chosen = afltool.info(head)["report"]["ridge"]
    said, _ = shown(head)
    assert f"{chosen:.6g} (generalised cross-validation)" in said["ridge"]


def test_many_names_are_counted(tmp_path, shown):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(3000, 2)), y=np.arange(3000) % 1500)
    many = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5")
    said, lines = shown(many)
    assert "1,500: 0, 1, 2, 3, 4, 5, 6, 7, …" in said["classes"]
    assert len(lines) < 10


def test_info_and_its_brief_form_know_every_kind_of_file():
    assert set(inspect._BY_KIND) == set(brief._LINES) == set(headers.KINDS)


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_a_digest_is_whole_however_narrow_the_terminal_is(road, cli, monkeypatch, more):
    monkeypatch.setenv("COLUMNS", "40")
    for path in road.of_each_kind().values():
        digest = afltool.info(path)["digest"]
        assert digest in cli("info", path, *more).stdout


# ---------------------------------------------------------------- in what two files differ


def what(*paths):
    return {one["what"]: one for one in afltool.diff(*paths)["differences"]}


def test_no_file_differs_from_itself(road):
    for path in road.of_each_kind().values():
        assert what(path, path) == {}


def test_arrays_that_differ_are_named_with_the_largest_difference(tmp_path, cli):
    rows = np.arange(6000.0).reshape(3000, 2)
    changed = rows.copy()
    changed[2700, 1] += 3
    paths = []
    for name, x in (("a", rows), ("b", changed), ("c", rows[:, :1])):
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(len(x)) % 3)
        made = tmp_path / f"{name}.h5"
        paths.append(afltool.import_embeddings(tmp_path / f"{name}.npz", made, dtype="float32"))
    found = what(*paths[:2])["features"]
    assert (found["entries"], found["differ"]) == (6000, 1)
    assert (found["largest"], found["at"]) == (3.0, [2700, 1])
    assert "features: 1 of 6,000 entries differ, by at most 3" in cli("diff", *paths[:2]).stdout
    assert what(paths[0], paths[2])["features"]["second"] == "[3000, 1] float32"


def test_integers_are_subtracted_exactly(tmp_path):
    big = np.array([2**62 + 1, -(2**62)])
    found = list(differences._of_arrays("a", big, np.array([2**62, 2**62])))
    assert (found[0]["differ"], found[0]["largest"], found[0]["at"]) == (2, 2**63, [1])


def test_numbers_that_are_not_finite_differ_from_others_alone():
    a, b = np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 2.0, 1.5])
    [found] = differences._of_arrays("a", a, b)
    assert (found["differ"], found["largest"], found["at"]) == (2, None, [1])


def test_options_classes_and_clients_that_differ_are_named(road, silo, tmp_path, cli):
    two = afltool.solve(road.total, tmp_path / "two.h5", head_options={"ridge": 2.0})
    assert what(road.head, two)["recipe.options.ridge"]["second"] == 2.0
    parts = [tmp_path / f"{name}.h5" for name in "ab"]
    for name, path in zip("ab", parts, strict=True):
        afltool.local_stats(silo[0], "linear", path, client=name, sum=True)
    found = what(*parts)
    assert found["clients.a"]["second"] is None is found["clients.b"]["first"]
    assert "gram" not in " ".join(found), "equal rows"
    done = cli("diff", road.head, road.total)
    assert done.exit_code == 4
    assert "a head file" in done.stderr
    assert "a statistics file" in done.stderr
