"""aggregate --subtract NAME: a client's file is found by the client's name, and never guessed."""

from __future__ import annotations

import pytest
from conftest import embeddings

import afltool
from afltool.errors import InputError
from afltool.files.listing import files_of_clients


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Three silos, each in a folder of its own, and all of them in one."""
    at = tmp_path_factory.mktemp("sites")
    for k, name in enumerate(("north", "St. Mary/Ost", "12")):
        rows = afltool.import_embeddings(
            embeddings(at / f"{k}.npz", 50 + k, seed=k), at / f"{k}.h5"
        )
        for folder in (at / "all", at / f"site {k}"):
            afltool.local_stats(rows, "linear", folder, client=name)
    return at


@pytest.mark.parametrize("name", ["north", "St. Mary/Ost", "12"])
def test_a_client_leaves_by_its_name(sites, tmp_path, cli, name):
    done = cli("aggregate", sites / "all", "--subtract", name, "-o", tmp_path / "t.h5")
    assert done.exit_code == 0, done.stderr
    others = [p for k, p in enumerate(sorted(sites.glob("site *")))
              if ("north", "St. Mary/Ost", "12")[k] != name]  # fmt: skip
    without = afltool.aggregate(others, tmp_path / "without.h5")
    found, wanted = (afltool.info(p) for p in (tmp_path / "t.h5", without))
    assert found["digest"] == wanted["digest"]
    assert found["client_names"] == wanted["client_names"]
    assert name not in found["client_names"]


def test_it_is_looked_for_beside_the_files_too(sites):
    (found,) = files_of_clients(["north"], [sites / "all" / "client-12.h5"])
    assert found == sites / "all" / "client-north.h5"


def test_clients_of_a_partition_have_numbers(road, tmp_path):
    (found,) = files_of_clients(["3"], [road.stats])
    assert afltool.info(found)["client_names"] == ["3"]
    left = afltool.aggregate([road.total], tmp_path / "left.h5", subtract=[found])
    named = afltool.aggregate([road.stats], tmp_path / "named.h5", subtract=["3"])
    assert afltool.info(left)["digest"] == afltool.info(named)["digest"]


def test_a_path_is_a_path_whatever_the_clients_are_called(sites, monkeypatch):
    monkeypatch.chdir(sites)
    assert files_of_clients(["all", "-", "no.h5", "s*"], [sites / "all"]) == [
        "all", "-", "no.h5", "s*"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "folders", "said"),
    [
        ("nroth", ["all"], r"nroth is neither a path nor a client whose file is in .*all"),
        ("north", ["all", "site 0"], r"2 files are of client 'north'"),
        ("2", ["all"], "neither a path nor a client"),  # client-12.h5 is not of client 2
        ("north", ["nowhere"], "in no folder"),
    ],
)
def test_what_is_no_client_or_two_is_refused(sites, name, folders, said):
    with pytest.raises(InputError, match=said):
        files_of_clients([name], [sites / folder for folder in folders])


def test_a_file_of_another_client_under_the_name_is_not_taken(sites, tmp_path):
    (tmp_path / "client-north.h5").write_bytes((sites / "all" / "client-12.h5").read_bytes())
    with pytest.raises(InputError, match="neither a path nor a client"):
        files_of_clients(["north"], [tmp_path])


def test_local_stats_of_a_silo_prints_its_file(sites, tmp_path, cli):
    done = cli("local-stats", sites / "0.h5", "--client", "a/b", "--head", "linear", "-o", tmp_path)
    assert done.stdout == f"{tmp_path / 'client-a%2Fb.h5'}\n"
    refused = cli("local-stats", sites / "0.h5", "--client", "a", "--only", "0/2", "--head",
                  "linear", "-o", tmp_path)  # fmt: skip
    assert refused.exit_code == 2
    assert "--only is not used with --client" in refused.stderr
