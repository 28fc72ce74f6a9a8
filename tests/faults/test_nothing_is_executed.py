"""A pickle that would run code, in every place where a user or a client can put a file."""

from __future__ import annotations

import io
import os
import pickle
import zipfile

import h5py
import numpy as np
import pytest
import torch
from helpers_images import write_imagefolder


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def bomb(tmp_path):
    """(pickled bomb, whether it went off)."""
    data = pickle.dumps(Bomb(tmp_path / "boom"))
    premise = pickle.dumps(Bomb(tmp_path / "premise"))
    pickle.loads(premise)
    assert (tmp_path / "premise").exists(), "the premise: unpickling it runs code"
    return data, lambda: (tmp_path / "boom").exists()


def object_array(data):
    """The bytes of a .npy file whose one entry is pickled."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([None], dtype=object), allow_pickle=True)
    header = buffer.getvalue()[: -len(pickle.dumps(np.array([None], dtype=object), protocol=4))]
    return header[: 128 * (len(header) // 128 or 1)] + data


def test_no_file_of_a_user_is_unpickled(bomb, road, tmp_path, cli):
    data, went_off = bomb
    names = ("p.npz", "p.npy", "p.txt", "p.csv", "p.json", "p.parquet", "p.toml", "p.h5", "p.pt")
    for name in names:
        (tmp_path / name).write_bytes(data)
    array = object_array(data)
    (tmp_path / "o.npy").write_bytes(array)
    with zipfile.ZipFile(tmp_path / "o.npz", "w") as archive:
        for name in ("x.npy", "y.npy", "row_ids.npy"):
            archive.writestr(name, array)
    torch.save(Bomb(tmp_path / "boom"), tmp_path / "o.pt")
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["header"] = np.void(data)
        file.attrs["afltool_format"] = np.void(data)
    images = write_imagefolder(tmp_path / "images", per_class=2)
    out = ["-o", tmp_path / "out.h5"]
    plain = tmp_path / "plain.npy"
    np.save(plain, np.ones((3, 2)))
    dealt = ["partition", road.train, "--scheme", "file", *out, "--table"]
    weights = ["extract", "--backbone", "resnet18", "--data", f"imagefolder:{images}", *out]
    tried = [
        *(["import", tmp_path / f"{n}.npz", *out] for n in "po"),
        *(["import", tmp_path / f"{n}.npy", "--labels", tmp_path / "p.txt", *out] for n in "po"),
        *(["import", plain, "--labels", tmp_path / f"{n}.npy", *out] for n in "po"),
        ["import", plain, "--labels", tmp_path / "p.txt", *out],
        ["import", road.embeddings, "--classes", tmp_path / "p.txt", *out],
        *([*dealt, tmp_path / f"p.{kind}"] for kind in ("csv", "parquet")),
        ["run", tmp_path / "p.toml", "-o", tmp_path / "run"],
        *(["verify", tmp_path / f"{n}.h5"] for n in "po"),
        *(["solve", tmp_path / f"{n}.h5", *out] for n in "po"),
        *(["evaluate", tmp_path / f"{n}.h5", road.test] for n in "po"),
        *([*weights, "--weights", tmp_path / f"{n}.pt"] for n in "po"),
    ]
    for args in tried:
        done = cli(*args)
        assert done.exit_code in (2, 3), (args, done.stderr)
        assert not went_off(), args
