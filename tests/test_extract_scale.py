"""extract in the large: kills, shards, crashes, memory, a million images. Slow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_images import narrow, write_imagefolder  # noqa: F401
from PIL import Image

import afltool

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SMALL = {"weights": "random", "image_size": 32}
ENGINES = ["torch", "onnxruntime"]  # openvino reads images as the second does


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_imagefolder(
        tmp_path_factory.mktemp("images"), per_class=200, size=16, splits=("train",)
    )


def extract(images, out, **options):
    return afltool.extract(
        backbone="narrow", data=f"imagefolder:{images}", out=out, **{**SMALL, **options}
    )


def script(code, *args, timeout=240):
    """Run a program of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# Children that are forked share the imports; each dies at a place that is drawn, of a real signal.
DYING = """
import os, random, signal, sys
import afltool, torch
from afltool.stages import extract as stage

tests, data, out, engine = sys.argv[1:]
sys.path.insert(0, tests)
from helpers_images import FAMILIES
FAMILIES.data["narrow"] = "helpers_images:Narrow"
stage.COMMIT_SECONDS = 0
draw = random.Random(0)

def run(place, share, number):
    def die():
        os.kill(os.getpid(), number)

    original = getattr(stage._Extraction, place)
    seen = []
    def dying(self, *args):
        if not seen:
            done = args[0].rows if place != "decode" else args[0]
            seen.append(int(done + share * (len(self.indices) - done)))
        before = args[0].rows if place != "decode" else args[0]
        if place == "append" and before >= seen[0] - 8:
            die()
        if place == "commit" and before == len(self.indices):  # the next run would have no work
            die()
        result = original(self, *args)
        if place == "commit" or (place == "decode" and before >= seen[0] - 8):
            die()
        return result
    setattr(stage._Extraction, place, dying)
    afltool.extract(backbone="narrow", data=data, split="train", out=out, weights="random",
                    image_size=32, engine=engine)

for k, place in enumerate(["append", "commit", "decode", "commit", "decode"]):
    share, number = draw.random(), signal.SIGSEGV if k == 4 else signal.SIGKILL
    child = os.fork()
    if child == 0:
        run(place, share, number)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number, (k, place, status)
    assert not os.path.exists(out)
print(os.path.getsize(out + ".partial"))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_sharded_and_resumed_after_many_kills_have_one_digest(
    images, tmp_path, caplog, engine
):
    """The last child dies of a segmentation fault in a codec."""
    whole = extract(images, tmp_path / "whole.h5", engine=engine)
    for part in range(5):
        extract(images, tmp_path / "shards" / f"{part}.h5", shard=f"{part}/5", engine=engine)
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    killed = tmp_path / "killed.h5"
    left = script(DYING, Path(__file__).parent, f"imagefolder:{images}", killed, engine)
    assert int(left) > 0
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, killed, engine=engine)
    assert re.search(r"(256|512) of 600 images are done", caplog.text)
    digests = {afltool.verify(path)["digest"] for path in (whole, merged, killed)}
    assert len(digests) == 1


PEAK = 'int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024'

# A network that costs nothing and gives 3,072 numbers: what is left is extract's own memory.
FLAT = f"""
import re, sys
import afltool, torch
from afltool.backbones import models
from afltool.backbones.models import Backbone

flat = torch.nn.Flatten()
models.load_backbone = lambda name, **o: Backbone(
    name=name, weights="random:0", weights_digest="0" * 64, node="all", dim=3072, module=flat)
afltool.extract(
    backbone="resnet18", data=sys.argv[1], split="train", out=sys.argv[2], weights="random",
    image_size=32, engine="torch"
)
print({PEAK})
"""


def test_memory_does_not_grow_with_the_images(tmp_path):
    """50 MB of features more; what may grow is the list of rows."""
    peaks = []
    for n in (12_600, 21_000):
        folder = linked_images(tmp_path / str(n), 10, n // 10)
        out = tmp_path / f"{n}.h5"
        peaks.append(float(script(FLAT, f"imagefolder:{folder}", out)))
        shutil.rmtree(folder)
    grown = (tmp_path / "21000.h5").stat().st_size - (tmp_path / "12600.h5").stat().st_size
    assert grown > 50e6
    assert peaks[1] - peaks[0] < 20, f"{peaks} MB"


def linked_images(folder, classes, per_class):
    """One picture under many names; hard links take next to no space."""
    first = folder / "one.jpg"
    folder.mkdir(parents=True)
    Image.new("RGB", (32, 32), "red").save(first)
    for label in range(classes):
        inside = folder / "train" / f"class{label:04d}"
        inside.mkdir(parents=True)
        for i in range(per_class):
            os.link(first, inside / f"picture_{i:06d}.jpg")
    return folder


STARTED = f"""
import re, sys, time
import afltool, torch, torchvision
from afltool.extraction import torch_engine as inference

def started(*args):
    print(time.process_time() - begun, {PEAK})
    sys.stdout.flush()
    raise KeyboardInterrupt

inference.infer = started
begun = time.process_time()
try:
    afltool.extract(
    backbone="resnet18", data=sys.argv[1], split="train", out=sys.argv[2], weights="random",
    image_size=32, engine="torch"
)
except KeyboardInterrupt:
    pass
"""


def test_a_million_images_start_within_10_seconds_and_2_gb(tmp_path):
    """Seconds of the processor, so that other work does not count; 5 on a quiet machine."""
    memory = Path("/dev/shm")
    place = (memory if memory.is_dir() else tmp_path) / f"afltool-million-{os.getpid()}"
    try:
        linked_images(place, 1000, 1000)
        seconds, peak = map(
            float, script(STARTED, f"imagefolder:{place}", tmp_path / "a.h5").split()[:2]
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert seconds < 10
    assert peak < 2048
