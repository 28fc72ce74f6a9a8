"""Weights from strangers: whatever a file holds, it is a dict of dense real tensors or refused."""

from __future__ import annotations

import pickle
import zipfile

import pytest
import torch
from torch import nn

from afltool.errors import InputError, InvalidDataError
from afltool.sources.backbones.weights_files import check_types, read_state

GOOD = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


CONTENTS = {
    "integer keys": ({0: torch.ones(2), 1: torch.ones(3)}, "a key of type int"),
    "one integer key": ({**GOOD, 7: torch.ones(3)}, "a key of type int"),
    "sparse": ({"weight": torch.eye(3).to_sparse()}, "layout torch.sparse_coo"),
    "meta": ({"weight": torch.ones(2, device="meta")}, "without numbers"),
    "complex": ({"weight": torch.ones(2, dtype=torch.complex64)}, "torch.complex64"),
    "expanded": ({"weight": torch.ones(1).expand(1000, 1000)}, "a view that repeats"),
    "no tensor": ({"weight": "text"}, "a str"),
    "nested": ({"weight": nested(50)}, "a list"),
    "a list": ([torch.ones(2)], "found list"),
    "empty": ({}, "expected a dict of tensors"),
    "a dict below": ({"state_dict": {3: torch.ones(2)}}, "a key of type int"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # PyTorch says that sparse tensors are in beta
@pytest.mark.parametrize("name", CONTENTS)
def test_odd_contents_are_named(tmp_path, name):
    content, words = CONTENTS[name]
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InvalidDataError, match=words):
        read_state(tmp_path / "w.pth")


def test_the_premise_a_good_file_is_read(tmp_path):
    torch.save({f"module.{key}": value for key, value in GOOD.items()}, tmp_path / "w.pth")
    assert read_state(tmp_path / "w.pth").keys() == GOOD.keys()
    transposed = {"weight": torch.arange(6.0).reshape(3, 2).T, "bias": torch.zeros(2)}
    torch.save(transposed, tmp_path / "t.pth")  # a view, of each number once
    layer = nn.Linear(3, 2)
    layer.load_state_dict(read_state(tmp_path / "t.pth"))
    assert torch.equal(layer.weight, transposed["weight"])


def test_integers_do_not_stand_for_weights_and_halves_do():
    with pytest.raises(InvalidDataError, match=r"float32 under weight, found torch.int64"):
        check_types(nn.Linear(3, 2), {**GOOD, "weight": torch.ones(2, 3).long()}, "test")
    check_types(nn.Linear(3, 2), {key: value.half() for key, value in GOOD.items()}, "test")


def test_an_archive_that_unpacks_to_gigabytes_is_refused_unread(tmp_path):
    torch.save(GOOD, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as plain,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name) + bytes(10**6) * name.endswith("/data/0"))
    with pytest.raises(InvalidDataError, match="that unpacks to 1,0"):
        read_state(tmp_path / "b.pth")


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04", b"\x80\x02" + b"(" * 100_000, pickle.dumps(nested(400)), b"\x00" * 1000],
    ids=["empty", "zip", "marks", "nested", "zeros"],
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_other_bytes_are_refused(tmp_path, data, suffix):
    (tmp_path / f"w{suffix}").write_bytes(data)
    with pytest.raises(InputError, match=r"not a file of weights|expected a dict of tensors"):
        read_state(tmp_path / f"w{suffix}")
