"""Features averaged over views of an image: what the mean is of, and that it depends on no more."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from helpers_images import write_imagefolder
from PIL import Image, ImageOps
from torchvision.transforms import functional

import afltool
from afltool.errors import MismatchError, UsageError
from afltool.files.features import open_features
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Views, parse_views
from afltool.sources.backbones.models import load_backbone
from afltool.sources.extraction.engines import load_network
from afltool.sources.extraction.space import options_for, preprocessing_of, space_of

SIZE = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """21 pictures of three classes, larger than what the network sees."""
    folder = tmp_path_factory.mktemp("images")
    return write_imagefolder(folder, per_class=7, splits=("train",), size=40)


def extract(images, out, **options):
    given = {"weights": "random", "image_size": SIZE, "preprocess": "paper", "engine": "torch",
             "views": "flip", **options}  # fmt: skip
    return afltool.extract(
        backbone="resnet18", data=f"imagefolder:{images}", split="train", out=out, **given
    )


def values(path):
    with open_features(path) as features:
        return np.asarray(features.stored(0, len(features))), features.row_ids.tolist()


def digest(path):
    return afltool.info(path)["digest"]


@pytest.fixture(scope="module")
def flipped(images, tmp_path_factory):
    return extract(images, tmp_path_factory.mktemp("flipped") / "a.h5")


@pytest.mark.parametrize(
    ("text", "views"),
    [
        ("flip", Views(True)),
        ("crops:5", Views(False, 5)),
        ("crops:2+flip", Views(True, 2)),
    ],
)
def test_views_are_named_in_any_order(text, views):
    assert parse_views(text) == views
    assert parse_views(str(views)) == views
    assert ExtractOptions(backbone="x", views=text).seen == views
    assert len(views) == (2 if views.flip else 1) * (views.crops or 1)


@pytest.mark.parametrize(
    "text", ["", "mirror", "flip+flip", "crops:1", "crops:6", "crops", "flip+"]
)
def test_what_names_no_views_is_refused(text):
    with pytest.raises(UsageError, match=r"--views is flip, crops:N or flip\+crops:N"):
        afltool.extract(backbone="resnet18", data="digits", views=text)


def test_the_square_that_views_are_cut_from_tells_their_side():
    views = Views(crops=5)
    assert [views.outer(s) for s in (224, 128, 32)] == [256, 146, 36]
    assert all(views.inner(views.outer(side)) == side for side in range(1, 600))
    assert Views(True).inner(7) == Views(True).outer(7) == 7
    with pytest.raises(UsageError, match="no view is cut from squares of 7 pixels"):
        views.inner(7)


def test_flip_is_the_mean_of_a_picture_and_its_mirror_image(images, flipped, tmp_path):
    """Exactly: of float32 features in float64, rounded once."""
    shutil.copytree(images, tmp_path / "mirrored")
    for path in (tmp_path / "mirrored").rglob("*.png"):
        ImageOps.mirror(Image.open(path)).save(path)
    # These nodes take steps as views do; the maximum keeps the first slice in company.
    two = {"node": ["penultimate", "layer1:max"], "dtype": "float32"}
    parts = [
        values(extract(folder, tmp_path / f"{folder.name}.h5", views=None, **two))[0]
        for folder in (images, tmp_path / "mirrored")
    ]
    found, _ = values(extract(images, tmp_path / "views.h5", **two))
    mean = ((parts[0].astype(np.float64) + parts[1]) / 2).astype(np.float32)
    assert not np.array_equal(parts[0], parts[1]), "the premise: mirroring changes features"
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_array_equal(values(flipped)[0], np.rint(mean[:, :512] * np.float64(512)))


def test_crops_are_torchvisions_five(images, tmp_path):
    """An independent loop: resize, five crops, their mirror images, the network, the mean."""
    found, ids = values(extract(images, tmp_path / "a.h5", views="flip+crops:5", dtype="float32"))
    network = load_backbone("resnet18", weights="random", image_size=SIZE).module
    expected = []
    for name in ids[:6]:
        picture = functional.resize(Image.open(images / name.decode()).convert("RGB"), [36])
        crops = functional.five_crop(picture, [SIZE, SIZE])
        seen = [one for crop in crops for one in (crop, ImageOps.mirror(crop))]
        x = torch.stack([functional.to_tensor(one) for one in seen])
        with torch.no_grad():
            expected.append(network((x - 0.5) / 0.5).double().mean(0).numpy())
    np.testing.assert_allclose(found[:6], np.stack(expected), rtol=1e-4, atol=1e-5)
    centre, _ = values(extract(images, tmp_path / "b.h5", views="crops:2", dtype="float32"))
    assert np.abs(centre - found).max() > 1e-3


@pytest.mark.parametrize("batch", [1, 23])
def test_one_digest_for_any_batch_size_and_number_of_threads(images, flipped, tmp_path, batch):
    before = torch.get_num_threads()
    torch.set_num_threads(1 + batch % 3)
    try:
        other = extract(images, tmp_path / "a.h5", batch_size=batch, workers=1 + batch % 2)
    finally:
        torch.set_num_threads(before)
    assert digest(other) == digest(flipped)


def test_merged_shards_and_totals_of_any_partition_are_the_whole(images, flipped, tmp_path):
    for i in range(3):
        extract(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/3")
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert digest(merged) == digest(flipped)
    totals = set()
    for clients in (1, 4):
        dealt = afltool.partition(
            merged, tmp_path / f"{clients}.h5", scheme="iid", clients=clients, seed=0
        )
        total = tmp_path / f"total{clients}.h5"
        afltool.local_stats(merged, "linear", total, partition=dealt, sum=True)
        totals.add(digest(total))
    assert len(totals) == 1


def test_a_head_refuses_other_views_by_name(images, flipped, tmp_path):
    total = afltool.local_stats(flipped, "linear", tmp_path / "t.h5", client="a")
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    assert afltool.evaluate(head, flipped)["top1"] > 0.9
    for views, field in ((None, "views"), ("crops:2", r"preprocessing\.crop is 36")):
        other = extract(images, tmp_path / f"{views}.h5", views=views)
        with pytest.raises(MismatchError, match=rf"space\.{field}"):
            afltool.evaluate(head, other)
    assert "views" not in afltool.info(tmp_path / "None.h5")["space"]


@pytest.mark.parametrize("views", ["flip", "flip+crops:2"])
def test_a_feature_space_says_its_views(images, tmp_path, views):
    """As whoever has a head does: the network that its space asks for, image by image."""
    path = extract(images, tmp_path / "a.h5", views=views, node="stages")
    space, (rows, names) = afltool.info(path)["space"], values(path)
    options = options_for(space, weights="random", batch_size=16, engine="torch")
    assert (str(options.views), options.image_size) == (views, SIZE)
    network = load_network(options, preprocessing_of(space))
    assert json.loads(json.dumps(space_of(network, options))) == space

    def decode(index):
        return network.preprocessing.pixels(Image.open(images / names[index].decode()))

    found = [rows for _, rows in network.features(decode, range(len(names)))]
    np.testing.assert_array_equal(np.rint(np.concatenate(found) * 512), rows)
