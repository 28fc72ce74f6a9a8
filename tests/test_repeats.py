"""The same rows under two names are not added up, as far as files can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import embeddings
from test_bad_input import MISMATCH, refused

import afltool
from afltool.errors import MismatchError
from afltool.values.names import Phase
from afltool.values.statistics import Client, ClientId, Statistics, Sum

SOURCE, EQUAL = "rows of the same feature file", "hold the same sums, number by number"


@pytest.fixture(scope="module")
def silos(road, tmp_path_factory):
    """Files of silos: one site twice, another, and the same rows in another order."""
    at = tmp_path_factory.mktemp("silos")
    with np.load(road.embeddings) as arrays:
        x, y = arrays["x"], arrays["y"]
    np.savez(at / "turned.npz", x=x[::-1], y=y[::-1])
    files = {
        "a": road.train,
        "b": road.train,
        "other": road.test,
        "turned": afltool.import_embeddings(at / "turned.npz", at / "turned.h5"),
        "half": afltool.import_embeddings(embeddings(at / "h.npz", 300), at / "half.h5"),
    }
    return {
        name: afltool.local_stats(path, road.head0, at / "s", client=name)
        for name, path in files.items()
    }


def test_a_silo_by_two_names_is_refused(silos, tmp_path, cli):
    out = tmp_path / "t.h5"
    done = cli("aggregate", silos["a"], silos["b"], "-o", out)
    refused(done, MISMATCH, silos["b"], "client b", EQUAL, "--allow-repeats")
    assert not out.exists()
    assert cli("aggregate", silos["a"], silos["b"], "--allow-repeats", "-o", out).exit_code == 0
    assert afltool.info(out)["rows"] == 1200
    again = cli("aggregate", out, silos["other"], "-o", tmp_path / "u.h5")
    assert again.exit_code == 0, "what was meant once is not asked again"


def test_a_silo_inside_a_total_is_seen_by_its_source(silos, tmp_path, cli):
    total = afltool.aggregate([silos["a"], silos["other"]], tmp_path / "t.h5")
    for law in ("sum", "pairwise"):
        done = cli("aggregate", total, silos["b"], "--law", law, "-o", tmp_path / "u.h5")
        refused(done, MISMATCH, "clients a and b", SOURCE, "--allow-repeats")
        more = ["--allow-repeats", "-o", tmp_path / f"{law}.h5"]
        assert cli("aggregate", total, silos["b"], "--law", law, *more).exit_code == 0


def test_a_partition_and_the_whole_file_are_the_same_rows(road, silos, tmp_path, cli):
    for files in ([road.stats, silos["a"]], [silos["a"], *sorted(road.stats.iterdir())[:1]]):
        refused(cli("aggregate", *files, "-o", tmp_path / "t.h5"), MISMATCH, SOURCE, "client")
    refused(
        cli("solve", road.total, "--validate", silos["a"], "-o", tmp_path / "h.h5"),
        MISMATCH, silos["a"], "the same feature file", "rows that the head has not seen",
    )  # fmt: skip


def test_rows_in_another_order_have_the_same_sums(silos, tmp_path, cli):
    done = cli("aggregate", silos["a"], silos["turned"], "-o", tmp_path / "t.h5")
    refused(done, MISMATCH, silos["turned"], EQUAL)


def test_what_honest_federations_have_is_added(road, silos, tmp_path):
    """Other files; clients of one partition with equal rows or none; a client that comes back."""
    afltool.aggregate([silos["a"], silos["other"], silos["half"]], tmp_path / "t.h5")
    np.savez(tmp_path / "e.npz", x=np.ones((6, 2)), y=np.arange(6) % 2)
    same = afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "e.h5")
    dealt = afltool.partition(same, tmp_path / "c.h5", scheme="iid", clients=8)
    stats = afltool.local_stats(same, "linear", tmp_path / "s", partition=dealt)
    digests = [afltool.info(p)["digest"] for p in stats.iterdir()]
    assert len(set(digests)) == 3, "the premise: equal clients, and equal empty ones"
    total = afltool.aggregate([stats], tmp_path / "u.h5")
    one = next(iter(sorted(stats.iterdir())))
    less = afltool.aggregate([total], tmp_path / "v.h5", subtract=[one])
    assert (
        afltool.info(afltool.aggregate([less, one], tmp_path / "w.h5"))["digest"]
        == (afltool.info(total)["digest"])
    )


def test_sums_in_memory_see_sources_too():
    def silo(name, source, rows=1):
        who = {ClientId(name): Client(rows, source=source)}
        return Statistics(Phase("gram"), {"gram": np.ones(1)}, np.array([rows]), clients=who)

    with pytest.raises(MismatchError, match="clients a and b have the rows"):
        silo("a", "file") + silo("b", "file")
    assert (silo("a", "file") + silo("b", "other")).rows == 2
    assert (silo("a", "file", 0) + silo("b", "file")).rows == 1, "no rows are no rows twice"
    assert Sum(silo("a", "file"), repeats=True).add(silo("b", "file")).result().rows == 2
    both = silo("a", "x") + silo("b", "file") - silo("b", "file") + silo("c", "file")
    assert {who.name for who in both.clients} == {"a", "c"}
    empty = replace(silo("a", ""), clients={ClientId("a"): Client(1)})
    assert (empty + replace(empty, clients={ClientId("b"): Client(1)})).rows == 2, "not told"
