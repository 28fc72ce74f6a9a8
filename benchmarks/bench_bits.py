"""What changes the bits of a feature, and how much of it rounding to fixed point absorbs.

python benchmarks/bench_bits.py [--data fashion-mnist] [--backbone resnet18] [--limit 256]
                                [--image-size 224] [--weights default] [--device cuda]

The same images through the same network in other ways, each compared with the first: batches of
16, all threads, fp32, prepared as extract does. Counted are entries that differ, as float32 and
after rounding to steps of 2^-9 (int16), and the largest difference in such steps. With --device a
second device is compared as well.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import numpy as np
import torch
from measure import machine

from afltool.backbones.models import load_backbone
from afltool.backbones.preprocessing import paper_preprocessing
from afltool.datasets import open_dataset
from afltool.extraction.torch_engine import infer, prepare_for_inference
from afltool.math.gram import encode

BITS = 9


def features(module, pixels, preprocessing, batch, device="cpu", precision="fp32", threads=None):
    """Features in batches of one size, as extract makes them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    rows = []
    try:
        for start in range(0, len(pixels), batch):
            part = pixels[start : start + batch]
            full = torch.cat([part, part[-1:].expand(batch - len(part), -1, -1, -1)])
            rows.append(infer(module, full, preprocessing, device, precision)[: len(part)])
    finally:
        torch.set_num_threads(before)
    return np.concatenate(rows)


def compare(name, reference, other) -> None:
    steps = np.abs(encode(reference, BITS).astype(int) - encode(other, BITS))
    largest = np.abs(reference - other).max() / np.abs(reference).max()
    print(
        f"{name:36} {np.mean(reference != other):8.3%} of float32   {np.mean(steps > 0):10.5%} of "
        f"int16, at most {steps.max():2d} steps   largest {largest:.1e} of the largest feature"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--split", default="test")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights", default="default")
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--device")
    a = parser.parse_args()
    dataset = open_dataset(a.data, a.split, data_root=a.data_root, limit=a.limit)
    preprocessing = paper_preprocessing(a.image_size)
    pixels = torch.stack(
        [torch.from_numpy(preprocessing.pixels(dataset.load(i))) for i in range(len(dataset))]
    )
    backbone = load_backbone(a.backbone, weights=a.weights, image_size=a.image_size)
    fast = prepare_for_inference(copy.deepcopy(backbone.module))
    print(machine(), f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{a.backbone} ({backbone.weights}) at {a.image_size}, {len(pixels)} images of {a.data}")

    def run(module=fast, batch=16, **how):
        return features(module, pixels, preprocessing, batch, **how)

    reference = run()
    compare("the same again", reference, run())
    for batch in (1, 8, 32, 64):
        compare(f"batches of {batch}", reference, run(batch=batch))
    compare("1 thread", reference, run(threads=1))
    compare("contiguous", reference, run(backbone.module.eval()))
    for precision in ("bf16", "fp16"):
        compare(f"--precision {precision}", reference, run(precision=precision))
    if a.device:
        there = prepare_for_inference(copy.deepcopy(backbone.module), a.device)
        for precision in ("fp32", "bf16", "fp16"):
            name = f"--device {a.device} --precision {precision}"
            compare(name, reference, run(there, 256, device=a.device, precision=precision))


if __name__ == "__main__":
    main()
