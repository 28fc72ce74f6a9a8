"""A head file that names the feature space and classes: other rows are refused before any work."""

from __future__ import annotations

import pytest
from conftest import embeddings

import afltool
from afltool.errors import MismatchError
from afltool.files.hdf5 import read_header
from afltool.stages.inspect import info

MISMATCH = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Features of one space by name of what differs, and a head that is bound to the first."""
    at = tmp_path_factory.mktemp("bound")
    raw = embeddings(at / "x.npz", 60)
    wide = embeddings(at / "wide.npz", 60, d=9)
    options = {
        "good": {}, "backbone": {"backbone": "other"}, "fraction_bits": {"fraction_bits": 8},
        "dtype": {"dtype": "float32"}, "classes": {"classes": [*map(str, range(5))]},
    }  # fmt: skip
    found = {
        name: afltool.import_embeddings(raw, at / f"{name}.h5", **one)
        for name, one in options.items()
    }
    found["dim"] = afltool.import_embeddings(wide, at / "dim.h5")
    found["head"] = afltool.head("linear", at / "head0.h5", space=found["good"])
    return found


@pytest.mark.parametrize("field", ["backbone", "fraction_bits", "dtype", "dim", "classes"])
def test_other_features_are_refused_before_anything_is_computed(made, field, tmp_path, cli):
    out = tmp_path / "out"
    done = cli("local-stats", made[field], "--client", "a", "--head", made["head"], "-o", out)
    assert done.exit_code == MISMATCH
    named = "classes has 5 entries" if field == "classes" else f"space.{field} is "
    for part in (named, str(made[field]), str(made["head"])):
        assert part in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("name", ["linear", "softmax", "safle"])
def test_the_binding_goes_through_all_rounds_and_changes_no_digest(made, tmp_path, name):
    """The same heads and totals, number by number, as without it."""
    digests = []
    for bound in (made["good"], None):
        at = tmp_path / str(bound is None)
        options = {"softmax": {"rounds": 2}, "safle": {"experts": 4, "buckets": 3}}.get(name, {})
        head = afltool.head(name, at / "0.h5", space=bound, head_options=options)
        digests.append([info(head)["digest"]])
        for number in range(1, 5):
            sent = afltool.local_stats(made["good"], head, at / str(number), client="a")
            total = afltool.aggregate([sent], at / f"{number}t.h5")
            head = afltool.solve(total, at / f"{number}.h5", head=head)
            digests[-1] += [info(total)["digest"], info(head)["digest"]]
            if info(head)["phase"] is None:
                break
            with pytest.raises(MismatchError, match=r"space\.backbone"):
                afltool.local_stats(made["backbone"], head, at / "other", client="a")
        assert info(head)["phase"] is None
    assert digests[0] == digests[1]


def test_info_shows_what_a_head_is_bound_to(made, tmp_path):
    features, free = info(made["good"]), afltool.head("linear", tmp_path / "h.h5")
    for key in ("space", "classes"):
        assert info(made["head"])[key] == read_header(made["good"])[key]
        assert info(free)[key] is None
    assert features["digest"] not in str(read_header(made["head"]))  # nothing of the rows
    assert read_header(free)["recipe"]["inputs"] == {}


def test_an_unbound_total_is_not_solved_with_a_bound_head(made, tmp_path):
    """A site with an older copy of the head file, which was not bound."""
    free = afltool.head("linear", tmp_path / "h.h5")
    sent = afltool.local_stats(made["backbone"], free, tmp_path, client="a")
    total = afltool.aggregate([sent], tmp_path / "t.h5")
    with pytest.raises(MismatchError, match=r"t\.h5 does not fit the head.*space\.backbone"):
        afltool.solve(total, tmp_path / "s.h5", head=made["head"])


def test_thresholds_of_other_features_cannot_be_bound(made, tmp_path):
    options = {"experts": 4, "buckets": 3, "thresholds": str(made["good"])}
    head = afltool.head("safle", tmp_path / "a.h5", space=made["good"], head_options=options)
    assert info(head)["space"] == info(made["head"])["space"]
    with pytest.raises(MismatchError, match=r"--space .*backbone\.h5 .*space\.backbone is"):
        afltool.head("safle", tmp_path / "b.h5", space=made["backbone"], head_options=options)
    assert not (tmp_path / "b.h5").exists()


def test_the_same_command_again_and_another_binding(made, tmp_path, cli):
    say = ["head", "linear", "-o", tmp_path / "h.h5"]
    assert cli(*say, "--space", made["good"]).exit_code == 0
    before = (tmp_path / "h.h5").read_bytes()
    assert cli(*say, "--space", made["good"]).exit_code == 0
    assert (tmp_path / "h.h5").read_bytes() == before
    assert "bound" in cli(*say, "--space", made["dim"]).stderr
    assert "bound" in cli(*say).stderr
    assert cli("head", "linear", "--space", made["head"], "-o", tmp_path / "x.h5").exit_code == 2
