"""Preprocessing inside a graph: Pillow's pixels, for every shape of picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from afltool.errors import UsageError
from afltool.sources.backbones.graph import Prepared
from afltool.sources.backbones.preprocessing import (
    Preprocessing,
    paper_preprocessing,
    synthetic_picture,
)

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WAYS = {
    "paper": paper_preprocessing(64),
    "bicubic and a crop": Preprocessing("weights", 73, 64, *IMAGENET, "bicubic"),
    "bilinear and a crop": Preprocessing("weights", 80, 63, *IMAGENET, "bilinear"),
}
SIZES = [(8, 8), (32, 32), (64, 64), (73, 73), (100, 60), (60, 100), (37, 41), (41, 37), (9, 300),
         (300, 9), (500, 320), (320, 500), (1000, 700), (1, 1), (65, 64), (64, 66)]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_those_of_extraction(way, size):
    """Not within a level: the same bytes, and the same floats behind them."""
    preprocessing = WAYS[way]
    rng = np.random.default_rng(size)
    picture = rng.integers(0, 256, (*size, 3)).astype(np.uint8)
    picture[: size[0] // 2] = np.where(picture[: size[0] // 2] < 128, 0, 255)  # overshoot
    pixels = preprocessing.apply(Image.fromarray(picture))
    wanted = preprocessing.normalise(pixels[None])
    found = Prepared(preprocessing)(torch.from_numpy(picture[None]))
    assert torch.equal(found, wanted)


def test_a_picture_with_edges_and_gradients_at_224():
    picture = synthetic_picture()
    for preprocessing in (
        paper_preprocessing(),
        Preprocessing("", 256, 224, *IMAGENET, "bicubic"),
    ):
        wanted = preprocessing.normalise(preprocessing.apply(picture)[None])
        assert torch.equal(Prepared(preprocessing)(torch.tensor(np.array(picture))[None]), wanted)


def test_a_batch_is_its_pictures():
    pictures = torch.randint(0, 256, (3, 40, 50, 3), dtype=torch.uint8,
                             generator=torch.Generator().manual_seed(0))  # fmt: skip
    together = Prepared(WAYS["paper"])(pictures)
    each = torch.cat([Prepared(WAYS["paper"])(picture[None]) for picture in pictures])
    assert torch.equal(together, each)


def test_another_interpolation_is_refused():
    with pytest.raises(UsageError, match=r"'nearest'; a graph can use bilinear or bicubic"):
        Prepared(Preprocessing("weights", 64, 64, *IMAGENET, "nearest"))
