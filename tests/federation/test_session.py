"""A session over a folder: everybody has the pooled head, whoever drops out or is killed."""

from __future__ import annotations

import numpy as np
import pytest
from parties import HEADS, Federation

from afltool.errors import IncompleteError
from afltool.federation.place import Place


@pytest.mark.parametrize("protection", ["masked", "signed"])
@pytest.mark.parametrize("head", HEADS)
def test_everybody_has_the_head_of_the_pooled_rows(tmp_path, head, protection):
    f = Federation(tmp_path, head, n=3, protection=protection)
    assert set(f.run().values()) == {""}
    assert {f.solved(n).digest() for n in ("server", *f.names)} == {f.pooled().digest()}
    site = f.sites["site-01"]
    assert {site.done(site.known(), name) for name in f.keys} == {True}


@pytest.mark.parametrize(("n", "protection"), [(2, "signed"), (5, "masked"), (16, "masked")])
def test_any_number_of_sites(tmp_path, n, protection):
    f = Federation(tmp_path, n=n, protection=protection)
    assert set(f.run().values()) == {""}
    assert f.solved("site-01").digest() == f.solved("server").digest() == f.pooled().digest()


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 16])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_of_many_sites(tmp_path, head, n):
    f = Federation(tmp_path, head, n=n)
    assert set(f.run().values()) == {""}
    assert {f.solved(x).digest() for x in ("server", *f.names)} == {f.pooled().digest()}


@pytest.mark.slow
@pytest.mark.parametrize("head", [("linear", {"ridge": 1.0}), ("softmax", {"rounds": 2}),
                                  ("random-features", {"width": 400, "compute": "fixed",
                                                       "ridge": 1.0})])  # fmt: skip
def test_wide_matrices(tmp_path, head):
    rng, rows = np.random.default_rng(0), {}
    for k in range(5):
        y = rng.integers(0, 3, 60)
        X = rng.integers(-900, 900, (60, 300)) + 400 * np.eye(3, 300)[y]
        rows[f"site-{k:02d}"] = X.astype(np.int16), y
    f = Federation(tmp_path, head, n=5, rows=rows)
    assert set(f.run().values()) == {""}
    assert f.solved("site-00").digest() == f.solved("server").digest() == f.pooled().digest()


@pytest.mark.parametrize("step", ["hello", "sums", "shares"])
@pytest.mark.parametrize("n", [5, pytest.param(16, marks=pytest.mark.slow)])
def test_a_member_drops_out_at_each_step(tmp_path, n, step):
    f = Federation(tmp_path, n=n, threshold=n - 1)
    gone, others = f.names[-1], ("server", *f.names[:-1])
    f.run(*others)
    if step != "hello":
        f.turn(gone, *others)  # its hello
        if step == "shares":
            f.turn(gone, *others)  # its sums
    f.server.deadline = 0.0
    assert set(f.run(*others).values()) == {""}
    inside = f.names if step == "shares" else f.names[:-1]
    assert f.solved("server").digest() == f.pooled(*inside).digest()
    if step != "shares":
        with pytest.raises(IncompleteError, match="goes on without"):
            f.run(gone)
        assert not list((tmp_path / gone).glob("secrets-*"))


def test_below_the_threshold_nothing_is_opened(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.server.deadline = 0.0
    waits = f.run("server", "site-00", "site-01")
    assert waits["server"] == "the hello of site-02, site-03 in round 0"
    assert not list((tmp_path / "place").glob("000-close*"))


@pytest.mark.parametrize("head", ["linear", "softmax"])
def test_killed_anywhere_the_same_bytes_are_sent(tmp_path, monkeypatch, head):
    """Every write of every party fails once, after it or before it; then all begin anew."""
    f = Federation(tmp_path, head, n=3)
    sent, write = {}, Place.write
    rng = np.random.default_rng(0)

    def fails(self, name, data):
        assert sent.setdefault(name, data) == data
        if rng.random() < 0.5:
            write(self, name, data)
        raise KeyboardInterrupt

    for _ in range(400):
        with monkeypatch.context() as m:
            m.setattr(Place, "write", fails)
            waits = []
            for one in (f.new_server(), *map(f.new_site, f.names)):
                try:
                    waits.append(one.turn())
                except KeyboardInterrupt:
                    waits.append("killed")
        if set(waits) == {""}:
            break
    assert set(waits) == {""}
    f.begin()
    assert f.solved("server").digest() == f.solved("site-01").digest() == f.pooled().digest()
