"""Releases with noise: none is used twice, no file tells whether rows changed, ε is that of σ."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import embeddings
from damage import forge
from rounds_under_masks import Round

import afltool
from afltool.errors import CorruptFileError, MismatchError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.statistics import load_statistics
from afltool.privacy import identity
from afltool.privacy.rounds import Release
from afltool.stages.inspect import info

GOLDEN = Path(__file__).parent / "golden"
BUDGET = {"dp_epsilon": 0.5, "dp_delta": 1e-5, "clip": 40.0}  # no row is longer


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    return Round(tmp_path_factory.mktemp("federation"), 4, 3)


@pytest.fixture
def site(tmp_path):
    """A member with rows of 16 features and two classes, and the same rows with an empty third."""
    raw = embeddings(tmp_path / "x.npz", 60, d=16, classes=2)
    afltool.keys(["site"], tmp_path)
    for names in (("a", "b"), ("a", "b", "c")):
        afltool.import_embeddings(raw, tmp_path / f"{len(names)}.h5", classes=names)
    return tmp_path


def released(site, classes, out="out", **options):
    """The noisy statistics of the rows with so many classes."""
    how = {"client": "site", "sign": site / "site.key", **BUDGET, **options}
    path = afltool.local_stats(site / f"{classes}.h5", "linear", site / f"{out}-{classes}", **how)
    return load_statistics(path)


def records(site, name="site"):
    return sorted((site / f"{name}.rounds" / "noise").glob("*"))


# ---------------------------------------------------------------- noise is used once


def test_an_empty_class_does_not_shift_the_noise(site):
    """One stream for all arrays gave 102 of 102 differences of the gram without noise (17 words a
    class, two draws each)."""
    with_two, with_three = (released(site, n).arrays["gram"] for n in (2, 3))
    plain = afltool.local_stats(site / "2.h5", "linear", site / "plain", client="site")
    gram = load_statistics(plain).arrays["gram"]
    shift, n = 34, 102
    without_noise = gram[shift:] - gram[:n]
    assert (with_two[shift:] - with_three[:n] == without_noise).sum() == 0
    assert len(records(site)) == 2


@pytest.mark.parametrize(
    "other", [{"dp_epsilon": 1.0}, {"dp_delta": 1e-6}, {"clip": 60.0}], ids=lambda o: next(iter(o))
)
def test_noise_of_another_context_is_drawn_anew(site, other):
    """Scaled by its σ, no array has the noise of another release."""
    plain = afltool.local_stats(site / "2.h5", "linear", site / "plain", client="site")
    exact = load_statistics(plain).arrays["cross"]
    found = []
    for options in ({}, other):
        one = released(site, 2, str(options), **options)
        noise = (one.arrays["cross"] - exact) / one.context.noise["sigma"]["cross"]
        found.append(noise.ravel())
    assert abs(np.corrcoef(*found)[0, 1]) < 0.9
    assert len(records(site)) == 2


def test_arrays_of_one_release_have_streams_of_their_own(site):
    """Class counts, cross and both parts of the gram: no part of one is a part of another."""
    one = released(site, 2, dp_epsilon=1e-9)  # the statistics are nothing beside this noise
    sigma = one.context.noise["sigma"]
    diagonal = np.cumsum(np.arange(1, 17)) - 1
    gram = one.arrays["gram"]
    parts = {
        "gram": gram[diagonal], "gram_off_diagonal": np.delete(gram, diagonal),
        "cross": one.arrays["cross"].ravel(),
    }  # fmt: skip
    firsts = [parts[name][:16] / sigma[name] for name in parts]
    apart = [np.abs(np.subtract.outer(a, b)).min() for a in firsts for b in firsts if a is not b]
    assert min(apart) > 1e-6


def test_the_same_release_again_has_the_same_bytes_and_its_record_tells_nothing(site):
    released(site, 2)
    (path,) = (site / "out-2").iterdir()
    first, (record,) = path.read_bytes(), records(site)
    known = record.read_bytes()
    path.unlink()
    released(site, 2)
    assert path.read_bytes() == first
    assert [(p, p.read_bytes()) for p in records(site)] == [(record, known)]
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o077 == 0
    for text in (info(site / "2.h5")["digest"], "epsilon", "linear", "recipe"):
        assert text.encode() not in known
    record.unlink()  # without it nobody can draw the same again: it would be another release
    with pytest.raises(UsageError, match="made differently"):
        released(site, 2)


def test_a_record_is_used_for_its_own_release_alone(site):
    released(site, 2)
    (first,) = records(site)
    released(site, 3)
    (second,) = set(records(site)) - {first}
    for wrong in (first.read_bytes(), second.read_bytes()[:-1], b""):
        second.write_bytes(wrong)
        with pytest.raises(CorruptFileError, match=r"another release|damaged"):
            released(site, 3, "again")
    assert not list(site.glob("again-3/*"))


def test_of_many_writers_one_draws(tmp_path):
    afltool.keys(["site"], tmp_path)
    me = identity.load(tmp_path / "site.key")
    with ThreadPoolExecutor(8) as pool:
        drawn = set(pool.map(lambda _: Release.of(me, tmp_path, {"rows": "x"}).nonce, range(32)))
    assert len(drawn) == 1
    assert len(list((tmp_path / "noise").iterdir())) == 1
    assert Release.of(me, tmp_path, {"rows": "y"}).nonce not in drawn


# ---------------------------------------------------------------- whether rows changed


def marks(path):
    """What of a header could be the same in two rounds because the rows are."""
    header = read_header(path)
    return header["recipe"]["inputs"]["features"], header["digest"]


@pytest.mark.parametrize("how", ["masked", "masked with noise", "signed with noise"])
def test_nobody_sees_in_two_rounds_whether_rows_changed(federation, how):
    found = []
    for number in (1, 2):
        budget = BUDGET if "noise" in how else {}
        server = federation.server if how.startswith("masked") else None
        federation.new_roster(f"{how}-{number}.json", 3, server=server, **budget)
        if server is None:
            path = federation.signed("site-0")
            again = federation.signed("site-0")
        else:
            federation.offer(federation.sites)
            path = federation.masked("site-0", again=True)
            again = federation.masked("site-0", again=True)
        assert again == path  # its own member knows it
        found.append(marks(path))
    assert not set(found[0]) & set(found[1])


def test_after_an_answer_nobody_can_draw_its_noise_again(federation):
    """The record of shared noise is deleted with the masks: the key alone opens no past round."""
    federation.new_roster("answered.json", 3, **BUDGET)
    federation.offer(federation.sites)
    files = [federation.masked(name, again=True) for name in federation.sites]
    folder = federation.folder / "keys" / "site-0.rounds" / info(federation.roster)["digest"][:32]
    (record,) = folder.glob("noise/*")
    assert record.stat().st_mode & 0o777 == 0o600
    federation.reveal(["site-0"], federation.aggregate(files))
    assert not record.exists()
    assert federation.masked("site-0") == files[0]  # up to date


# ---------------------------------------------------------------- what info says


def test_an_edited_epsilon_is_refused(federation, tmp_path):
    federation.new_roster("edited.json", 3, server=None, **BUDGET)
    path = federation.signed("site-0")
    noise = info(path)["context"]["noise"]
    for field, value in (("epsilon", 0.05), ("delta", 1e-9), ("clip", 60.0), ("members", 9)):
        context = {**read_header(path)["context"], "noise": {**noise, field: value}}
        edited = forge(path, tmp_path / f"{field}.h5", {"context": context})
        with pytest.raises(CorruptFileError, match=rf"{field}\.h5: its header says ε = "):
            info(edited)


@pytest.mark.parametrize(
    ("field", "value"),
    [("members", 0), ("members", 10**9), ("form", "none"), ("clip", 1e300), ("delta", 0.0)]
    + [("sigma", {"gram": value, "cross": 1.0, "class_counts": 1.0}) for value in (0.0, 1e300)],
)
def test_an_entry_of_noise_that_nobody_can_compute_with_is_damage(tmp_path, field, value):
    path = GOLDEN / "noisy-shared.h5"
    context = read_header(path)["context"]
    context["noise"][field] = value
    with pytest.raises(CorruptFileError, match=rf"in context\.noise {field}"):
        info(forge(path, tmp_path / "edited.h5", {"context": context}))


def test_older_noisy_files_are_read_and_solved(tmp_path):
    """One σ for the whole gram; shared noise counted the reader's own."""
    local, shared = (GOLDEN / f"noisy-{form}.h5" for form in ("local", "shared"))
    assert "(ε = 1, δ = 1e-05)-differentially private" in info(local)["privacy"]
    said = info(shared)["privacy"]
    assert "The sum over 4 clients is (ε = 0.8552," in said
    assert "against a member, who knows its own noise, ε = 1." in said
    for path in (local, shared):
        assert info(path)["digest"] == read_header(path)["digest"]
        report = info(afltool.solve(path, tmp_path / path.name))["report"]
        assert report["ridge_by"] == "AdaSSP"
        assert 0 < report["ridge"] < math.inf
    with pytest.raises(MismatchError, match="noise"):
        afltool.aggregate([local, shared], tmp_path / "t.h5")
