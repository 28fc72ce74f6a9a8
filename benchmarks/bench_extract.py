"""extract against the plain loop (DataLoader, fp32, contiguous, batch 256), end to end.

python benchmarks/bench_extract.py [BACKBONE] [SIZE] [IMAGES]      resnet18 224 512
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import machine
from PIL import Image
from torchvision import datasets, transforms

import afltool
from afltool.backbones import load_backbone

ROUNDS = 3


def photographs(folder: Path, images: int) -> None:
    """Smooth random JPEG files of 32 × 32, as CIFAR's are, in two classes."""
    rng = np.random.default_rng(0)
    for i in range(images):
        place = folder / "train" / f"class{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        small.resize((32, 32), Image.Resampling.BICUBIC).save(place / f"{i:05}.jpg", quality=95)


def plain(folder: Path, backbone: str, size: int) -> float:
    """Images a second of the loop that everybody writes first."""
    half = (0.5, 0.5, 0.5)
    prepare = transforms.Compose(
        [transforms.Resize(size), transforms.ToTensor(), transforms.Normalize(half, half)]
    )
    data = datasets.ImageFolder(folder / "train", prepare)
    module = load_backbone(backbone, weights="random", image_size=size).module
    begun = time.perf_counter()
    with torch.no_grad():
        loader = torch.utils.data.DataLoader(data, batch_size=256)
        np.save(folder / "plain.npy", np.concatenate([module(x).numpy() for x, _ in loader]))
    return len(data) / (time.perf_counter() - begun)


def ours(folder: Path, backbone: str, size: int, images: int) -> float:
    """Images a second of the stage, the building of the network left out as above."""
    from afltool.stages import extract as stage

    seconds = []
    original = stage._Job.run

    def timed(self: object, *args: object) -> None:
        begun = time.perf_counter()
        original(self, *args)
        seconds.append(time.perf_counter() - begun)

    stage._Job.run = timed
    try:
        afltool.extract(
            backbone, f"imagefolder:{folder}", "train", folder / "ours.h5",
            weights="random", image_size=size, overwrite=True,
        )  # fmt: skip
    finally:
        stage._Job.run = original
    return images / seconds[0]


def main() -> None:
    backbone = sys.argv[1] if len(sys.argv) > 1 else "resnet18"
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 224
    images = int(sys.argv[3]) if len(sys.argv) > 3 else 512
    print(machine(), f"torch {torch.__version__}")
    rates = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder, images)
        for _ in range(ROUNDS):
            rates.append((plain(folder, backbone, size), ours(folder, backbone, size, images)))
    for one, two in rates:
        print(f"plain {one:6.1f} images/s   extract {two:6.1f} images/s   ratio {two / one:.2f}")
    ratio = np.median([two / one for one, two in rates])
    print(f"{backbone} at {size}: median ratio {ratio:.2f} (goal: at least 1.3)")


if __name__ == "__main__":
    main()
