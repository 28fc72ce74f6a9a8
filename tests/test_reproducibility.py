"""What may change the bits of a feature, and what may not (docs/decisions/reproducibility.md)."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers_images import patterns
from PIL import Image

import afltool
from afltool.backbones.models import load_backbone
from afltool.backbones.preprocessing import paper_preprocessing
from afltool.extraction.torch_engine import infer, prepare_for_inference
from afltool.math.gram import encode

SIZE, N = 64, 24


@pytest.fixture(scope="module")
def resnet18():
    return load_backbone("resnet18", weights="random", image_size=SIZE).module


@pytest.fixture(scope="module")
def pixels():
    preprocessing = paper_preprocessing(SIZE)
    pictures = patterns(np.arange(N) % 4, 4, 40, seed=0)
    return torch.stack(
        [torch.from_numpy(preprocessing.pixels(Image.fromarray(p))) for p in pictures]
    )


def features(module, pixels, batch=8, device="cpu", precision="fp32"):
    preprocessing = paper_preprocessing(SIZE)
    parts = [pixels[k : k + batch] for k in range(0, len(pixels), batch)]
    return np.concatenate([infer(module, p, preprocessing, device, precision) for p in parts])


def steps(a, b):
    return np.abs(encode(a, 9).astype(int) - encode(b, 9))


@pytest.fixture(scope="module")
def ready(resnet18):
    return prepare_for_inference(copy.deepcopy(resnet18))


@pytest.fixture(scope="module")
def reference(ready, pixels):
    return features(ready, pixels)


def test_the_same_batches_give_the_same_bits_whoever_is_beside_an_image(ready, pixels, reference):
    np.testing.assert_array_equal(features(ready, pixels.flip(0))[::-1], reference)


@pytest.mark.parametrize("change", ["batches of 1", "batches of 24", "threads", "layout"])
def test_batch_threads_and_layout_change_last_bits_that_rounding_absorbs(
    resnet18, ready, pixels, reference, change
):
    before = torch.get_num_threads()
    if change == "threads":
        torch.set_num_threads(2 if before == 1 else 1)
    try:
        module = resnet18.eval() if change == "layout" else ready
        other = features(module, pixels, int(change.split()[-1]) if "batch" in change else 8)
    finally:
        torch.set_num_threads(before)
    if change == "layout":
        assert (other != reference).any(), "the premise: they are two ways to compute it"
    assert steps(reference, other).max() <= 1
    assert (steps(reference, other) > 0).mean() < 0.01


def test_bf16_is_another_feature_space(ready, pixels, reference):
    """Rounding to 8 bits is beyond a step of 2^-9: so it is an option that a file records."""
    other = features(ready, pixels, precision="bf16")
    assert (steps(reference, other) > 0).mean() > 0.1


SETTINGS = """
import torch
from afltool.extraction.torch_engine import arithmetic
b = torch.backends
places = b.cuda.matmul, b.cudnn.conv, b.mkldnn.matmul, b.mkldnn.conv
def check():
    before = [one.fp32_precision for one in places]
    with arithmetic("cpu", "fp32"):
        assert [one.fp32_precision for one in places] == ["ieee"] * 4
    assert [one.fp32_precision for one in places] == before
b.cuda.matmul.allow_tf32 = b.cudnn.allow_tf32 = True
check()
b.fp32_precision = "tf32"
check()
b.cudnn.conv.fp32_precision = "ieee"
b.mkldnn.matmul.fp32_precision = "bf16"
check()
"""


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="PyTorch 2.9 or newer")
@pytest.mark.slow
def test_fp32_is_fp32_whatever_the_process_has_set():
    """In PyTorch's older way, in its newer one, and in both; then it is as the process set it."""
    subprocess.run([sys.executable, "-c", SETTINGS], check=True)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@needs_gpu
def test_a_gpu_in_fp32_differs_by_last_bits(resnet18, pixels, reference):
    """Runs where there is CUDA: no TF32 whatever the process has set, one step at most."""
    ready = prepare_for_inference(copy.deepcopy(resnet18), "cuda")
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        other = features(ready, pixels, device="cuda")
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
    assert steps(reference, other).max() <= 1
    assert (steps(reference, other) > 0).mean() < 0.02


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_extract_on_a_gpu_overlaps_without_mixing_batches_up(precision, tmp_path):
    """Runs where there is CUDA: two threads give it steps in turn."""
    how = {"backbone": "resnet18", "data": "digits", "split": "test", "device": "cuda",
           "weights": "random", "image_size": 32, "precision": precision, "limit": 200}  # fmt: skip
    whole = afltool.extract(out=tmp_path / "a.h5", **how)
    parts = [
        afltool.extract(out=tmp_path / f"{part}.h5", shard=f"{part}/2", **how) for part in range(2)
    ]
    merged = afltool.merge(parts, tmp_path / "merged.h5")
    assert afltool.info(merged)["digest"] == afltool.info(whole)["digest"]
