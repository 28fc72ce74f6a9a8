"""Names of clients in the files of their statistics; who leaves is given by the file."""

from __future__ import annotations

import pytest
from conftest import embeddings

import afltool
from afltool.values.names import file_of_name


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
def test_a_client_leaves_by_its_file(sites, tmp_path, cli, name):
    gone = sites / "all" / file_of_name(name)
    done = cli("aggregate", sites / "all", "--subtract", gone, "-o", tmp_path / "t.h5")
    assert done.exit_code == 0, done.stderr
    others = [p for k, p in enumerate(sorted(sites.glob("site *")))
              if ("north", "St. Mary/Ost", "12")[k] != name]  # fmt: skip
    without = afltool.aggregate(others, tmp_path / "without.h5")
    found, wanted = (afltool.info(p) for p in (tmp_path / "t.h5", without))
    assert found["digest"] == wanted["digest"]
    assert found["client_names"] == wanted["client_names"]
    assert name not in found["client_names"]


def test_a_name_is_no_file(sites, tmp_path, cli):
    done = cli("aggregate", sites / "all", "--subtract", "north", "-o", tmp_path / "t.h5")
    assert done.exit_code == 3
    assert cli("aggregate", sites / "all", "--add", sites / "0.h5", "-o", "t.h5").exit_code == 2


def test_local_stats_of_a_silo_prints_its_file(sites, tmp_path, cli):
    done = cli("local-stats", sites / "0.h5", "--client", "a/b", "--head", "linear", "-o", tmp_path)
    assert done.stdout == f"{tmp_path / 'client-a%2Fb.h5'}\n"
    refused = cli("local-stats", sites / "0.h5", "--client", "a", "--only", "0/2", "--head",
                  "linear", "-o", tmp_path)  # fmt: skip
    assert refused.exit_code == 2
    assert "--only is not used with --client" in refused.stderr
