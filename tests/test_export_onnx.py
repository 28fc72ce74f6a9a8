"""ONNX files read by onnxruntime alone: squares of bytes in, afltool's own predictions out."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch
from conftest import installed
from PIL import Image

import afltool
from afltool.errors import MismatchError
from afltool.files.features import open_features
from afltool.files.hdf5 import recipe
from afltool.files.heads import load_head, save_head
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.math.gram import real
from afltool.sources.backbones.families import preprocessing_for
from afltool.sources.images import open_dataset
from afltool.values.statistics import Context

pytestmark = pytest.mark.slow
pytest.importorskip("timm")
load_file = pytest.importorskip("safetensors.numpy").load_file
ROWS = 200


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Features of digits by a small network with random weights, dealt to clients."""
    at = tmp_path_factory.mktemp("digits")
    how = {"weights": "random", "image_size": 32, "data": "digits"}
    for split, limit in (("train", 400), ("test", ROWS)):
        afltool.extract(
            backbone="timm:test_resnet", split=split, out=at / f"{split}.h5", limit=limit, **how
        )
    afltool.partition(at / "train.h5", at / "clients.h5", scheme="iid", clients=3)
    return at


@pytest.fixture(scope="module")
def pictures():
    """The test digits as they are decoded, uint8 (n, 8, 8, 3)."""
    data = open_dataset("digits", "test", limit=ROWS)
    return np.stack([np.asarray(data.load(i)) for i in range(len(data))])


def squares(pictures, side=32):
    """What a file takes: the digits as the preprocessing of the weights makes them."""
    way = preprocessing_for("weights", "timm:test_resnet", image_size=side)
    return np.stack([way.pixels(Image.fromarray(p)).transpose(1, 2, 0) for p in pictures])


@pytest.fixture(scope="module")
def files(pictures, tmp_path_factory):
    """The same pictures as PNG files, in the order of their names."""
    at = tmp_path_factory.mktemp("pictures")
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(at / f"{i:03d}.png")
    return at


# One of each kind of graph; test_export_graphs.py has every head.
HEADS = {
    "linear": ("linear", {"ridge": 1.0}),
    "deepafl": ("deepafl", {"layers": 2, "width": 64}),
    "random features": ("random-features", {"width": 256, "ridge": 1.0}),
    "safle": ("safle", {"buckets": 4, "group_size": 3, "ridge": 1.0}),
    "qda": ("discriminant", {"rule": "qda", "shrinkage": 0.5}),
}


def network(at, path):
    """A trained network's file: a random layer with ReLU, and least squares behind it."""
    with open_features(at / "train.h5") as rows:
        X, y, header = real(rows.rows(0, len(rows))), rows.labels, rows.header
    rng = np.random.default_rng(0)
    first, bias = rng.normal(size=(X.shape[1], 64)) * 4, rng.normal(size=64)
    hidden = np.hstack([np.maximum(X @ first + bias, 0.0), np.ones((len(X), 1))])
    last = np.linalg.lstsq(hidden, np.eye(10)[y], rcond=1e-4)[0]
    arrays = {"weights-0": first, "bias-0": bias, "weights-1": last[:-1], "bias-1": last[-1]}
    head = make_head("network").restore(None, arrays).bind(X.shape[1], 10)
    context = Context(header["space"], tuple(header["classes"]), binding(head))
    return save_head(path, head, recipe("baseline", {}, {}), context)


def solved(name, options, at, folder):
    if name == "network":
        return network(at, folder / "head.h5")
    head = afltool.head(name, folder / "head.h5", head_options=options)
    number = 0
    while afltool.info(head)["phase"] is not None:
        total = afltool.local_stats(
            at / "train.h5", head, folder / f"t{number}.h5", partition=at / "clients.h5", sum=True
        )
        head = afltool.solve(total, folder / f"h{number}.h5", head=head)
        number += 1
    return head


def predictions(head, files, out, cli):
    """The column of `afltool predict`, of the installed command or, in less time, of ``cli``."""
    args = ["predict", head, files, "--weights", "random", "-o", out]
    done = installed(*args) if cli is None else cli(*args)
    assert out.exists(), done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [str(path) for path in sorted(files.iterdir())]
    return np.array([row["predicted"] for row in rows])


@pytest.mark.parametrize("case", [*HEADS, "network"])
def test_predictions_from_raw_digits_are_afltools(case, digits, pictures, files, tmp_path, cli):
    """200 of the digits: at least 99.9 % of them, so every one, by the file that predict writes."""
    import onnxruntime

    name, options = HEADS.get(case, ("network", {}))
    head = solved(name, options, digits, tmp_path)
    weights = {"with_backbone": True, "weights": "random"}
    path = afltool.export(head, tmp_path / "m.onnx", card=tmp_path / "card.md", **weights)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"images": squares(pictures)}), strict=True))
    with open_features(digits / "test.h5") as rows:
        wanted = load_head(head)[0].scores(rows.rows(0, ROWS))
        classes = list(rows.classes)
    assert (found["predicted"] == wanted.argmax(axis=1)).mean() >= 0.999
    told = predictions(head, files, tmp_path / "p.csv", None if case == "linear" else cli)
    assert (np.array(classes)[found["predicted"]] == told).mean() >= 0.999
    assert len(np.unique(found["predicted"])) > 3, "the premise: not one class for everything"
    said = json.loads(session.get_modelmeta().custom_metadata_map["afltool"])
    assert said["classes"] == classes
    assert said["input"]["shape"] == ["n", 32, 32, 3]
    assert afltool.info(head)["digest"] in (tmp_path / "card.md").read_text()
    assert str(tmp_path.parent).encode() not in path.read_bytes()


def test_another_node_and_other_weights(tmp_path, pictures):
    """Bare arrays and a program of torch, of a network that ends before its end."""
    how = {"weights": "random", "image_size": 32, "data": "digits", "node": ("layer3",),
           "views": "flip"}  # fmt: skip
    train = afltool.extract(backbone="timm:test_resnet", out=tmp_path / "x.h5", limit=60, **how)
    total = afltool.local_stats(train, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    with pytest.raises(MismatchError, match="weights"):
        afltool.export(head, tmp_path / "m.pt2", with_backbone=True, weights="random", seed=1)
    assert not (tmp_path / "m.pt2").exists()
    path = afltool.export(head, tmp_path / "m.pt2", with_backbone=True, weights="random")
    program = torch.export.load(io.BytesIO(path.read_bytes())).module()
    features, scores, predicted = program(torch.from_numpy(squares(pictures[:50])))
    assert features.shape == (50, afltool.info(head)["dim"])
    assert np.array_equal(predicted, scores.argmax(dim=1))
