"""extract against the plain loop (DataLoader, fp32, contiguous, batch 256), end to end.

python benchmarks/bench_extract.py [BACKBONE] [SIZE] [IMAGES] [--rounds 3] [--alone] [--compile]
                                                                     resnet18 224 512

Also what share of the machine's arithmetic it uses: multiplications and additions of the network
an image, counted by PyTorch, times images a second, against a large matrix product in the same run.
With --alone also what each step from the plain network to extract's brings, with --compile whether
torch.compile would pay.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import alternately, machine
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from torchvision import datasets, transforms

import afltool
from afltool.cache.memory import keep_freed
from afltool.sources.backbones.inference import prepare_for_inference
from afltool.sources.backbones.models import load_backbone

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


def operations(backbone: str, size: int) -> float:
    """Multiplications and additions of one image, counted by PyTorch as it runs."""
    module = load_backbone(backbone, weights="random", image_size=size).module
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, 3, size, size))
    return float(counter.get_total_flops())


def most_operations(side: int = 2048) -> float:
    """Operations a second of a single-precision matrix product, the best of 5."""
    a, b = torch.rand(side, side), torch.rand(side, side)
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - begun)
    return 2 * side**3 / min(seconds)


def alone(backbone: str, size: int, with_compiler: bool) -> None:
    """Images a second of the network alone, step by step from plain to what extract runs."""
    module = load_backbone(backbone, weights="random", image_size=size).module
    last = copy.deepcopy(module).to(memory_format=torch.channels_last)
    ready = prepare_for_inference(copy.deepcopy(module), image_size=size)
    forms = {"plain": module, "channels last": last, "and folded batch norms (extract)": ready}
    if with_compiler:
        forms["and torch.compile"] = torch.compile(ready)
    for batch in (16, 256):
        x = torch.rand(batch, 3, size, size)
        nhwc = x.contiguous(memory_format=torch.channels_last)
        steps = [partial(one, x if name == "plain" else nhwc) for name, one in forms.items()]
        with torch.inference_mode():
            for name, took in zip(forms, alternately(*steps, repeats=5), strict=True):
                print(f"network alone, batches of {batch:3}: {batch / took:6.1f} images/s  {name}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backbone", nargs="?", default="resnet18")
    parser.add_argument("size", nargs="?", type=int, default=224)
    parser.add_argument("images", nargs="?", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--compile", action="store_true")
    a = parser.parse_args()
    keep_freed()  # as the command does
    print(machine(), f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rates = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder, a.images)
        for _ in range(a.rounds):
            most = most_operations()
            one = plain(folder, a.backbone, a.size)
            rates.append((one, ours(folder, a.backbone, a.size, a.images), most))
    per_image = operations(a.backbone, a.size)
    for one, two, most in rates:
        print(
            f"plain {one:6.1f} images/s   extract {two:6.1f} images/s   ratio {two / one:.2f}   "
            f"matrix product {most / 1e9:.0f} Gflop/s, extract uses {two * per_image / most:.0%}"
        )
    ratio = np.median([two / one for one, two, _ in rates])
    print(
        f"{a.backbone} at {a.size} ({per_image / 1e9:.2f} Gflop an image): median ratio "
        f"{ratio:.2f} (goal: at least 1.6)"
    )
    if a.alone or a.compile:
        alone(a.backbone, a.size, a.compile)


if __name__ == "__main__":
    main()
