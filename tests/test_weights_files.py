"""Weights from strangers: whatever a file holds, it is a dict of dense real tensors or refused."""

from __future__ import annotations

import pickle
import zipfile

import pytest
import torch
from torch import nn

from afltool.errors import CorruptFileError, InputError, InvalidDataError
from afltool.sources.backbones.weights_files import check_types, read_state

GOOD = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


CONTENTS = {
    "integer keys": ({0: torch.ones(2), 1: torch.ones(3)}, "names and tensors"),
    "one integer key": ({**GOOD, 7: torch.ones(3)}, "names and tensors"),
    "no tensor": ({"weight": "text"}, "under 'weight' it has a str"),
    "nested": ({"weight": nested(50)}, "under 'weight' it has a list"),
    "a list": ([torch.ones(2)], "found list"),
    "empty": ({}, "expected a dict of tensors"),
    "a dict below": ({"state_dict": {3: torch.ones(2)}}, "names and tensors"),
    "sparse": ({**GOOD, "weight": torch.ones(2, 3).to_sparse()}, "do not fit"),
    "meta": ({**GOOD, "weight": torch.ones(2, 3, device="meta")}, "do not fit"),
    "complex": ({**GOOD, "weight": torch.ones(2, 3, dtype=torch.complex64)}, "found torch.complex"),
    "integers": ({**GOOD, "weight": torch.ones(2, 3).long()}, "weight, found torch.int64"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # PyTorch says that sparse tensors are in beta
@pytest.mark.parametrize("name", CONTENTS)
def test_odd_contents_are_named(tmp_path, name):
    """By the reader, by PyTorch, which cannot load them, or by their types."""
    content, words = CONTENTS[name]
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InvalidDataError, match=words):
        load(tmp_path / "w.pth")


def load(path):
    layer, state = nn.Linear(3, 2), read_state(path)
    try:
        layer.load_state_dict(state)
    except Exception as error:
        raise InvalidDataError(f"do not fit: {error}") from error
    check_types(layer, state, "w.pth")


def test_the_premise_a_good_file_is_read(tmp_path):
    torch.save({f"module.{key}": value for key, value in GOOD.items()}, tmp_path / "w.pth")
    assert read_state(tmp_path / "w.pth").keys() == GOOD.keys()
    transposed = {"weight": torch.arange(6.0).reshape(3, 2).T, "bias": torch.zeros(2)}
    torch.save(transposed, tmp_path / "t.pth")  # a view, of each number once
    layer = nn.Linear(3, 2)
    layer.load_state_dict(read_state(tmp_path / "t.pth"))
    assert torch.equal(layer.weight, transposed["weight"])


def test_halves_stand_for_weights():
    check_types(nn.Linear(3, 2), {key: value.half() for key, value in GOOD.items()}, "test")


def test_an_archive_that_unpacks_to_gigabytes_is_refused_unread(tmp_path):
    torch.save(GOOD, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as plain,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name) + bytes(10**6) * name.endswith("/data/0"))
    with pytest.raises(CorruptFileError, match="not a file of weights"):
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
