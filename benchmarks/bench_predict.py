"""predict against extract on the same images, its memory for many rows, and one image from cold.

Run: python benchmarks/bench_predict.py [--images 512] [--rounds 3] [--only images|cold|memory]

Each command runs in a process of its own, and the system says what it took. Processor seconds
count, because the cores may be shared; the start of a command (an extraction or prediction of one
batch) is taken off where images a second are told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from measure import fresh, machine
from PIL import Image

BATCH = 16
CLASSES = 10


def photographs(folder: Path, n: int) -> None:
    """JPEG files of 500 × 375 with the detail of photographs, one folder a class."""
    rng = np.random.default_rng(0)
    for i in range(n):
        small = Image.fromarray(rng.integers(0, 256, (47, 63, 3), dtype=np.uint8))
        path = folder / "train" / f"c{i % CLASSES}" / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)


def afltool(*words: object) -> dict[str, float]:
    """Run a command; its seconds, processor seconds and peak memory."""
    command = [Path(sys.executable).with_name("afltool"), "-q", *map(str, words)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    seconds = {"seconds": time.perf_counter() - begun, "cpu_seconds": used.ru_utime + used.ru_stime}
    return {**seconds, "peak_mb": used.ru_maxrss * 1024 / 1e6}


def head_for(folder: Path, backbone: list[object], few: Path) -> Path:
    """A linear head on features of a few images."""
    train, total, head = (folder / name for name in ("train.h5", "total.h5", "head.h5"))
    afltool("extract", *backbone, "--data", f"imagefolder:{few}", "-o", train)
    afltool("local-stats", train, "--client", "a", "--head", "linear", "--sum", "-o", total)
    afltool("solve", total, "--ridge", 1, "-o", head)
    return head


def images_a_second(
    folder: Path, head: Path, backbone: list[object], images: int, rounds: int
) -> None:
    """Print processor seconds of an image for extract and predict."""
    all_, few = folder / "all", folder / "few"
    photographs(all_, images)

    def extract(data: Path) -> float:
        out = ["-o", folder / "x.h5", "--overwrite"]
        return afltool("extract", *backbone, "--data", f"imagefolder:{data}", *out)["cpu_seconds"]

    def predict(data: Path) -> float:
        out = ["-o", folder / "p.csv", "--overwrite"]
        return afltool("predict", head, data, "--weights", "random", *out)["cpu_seconds"]

    each: dict[str, list[float]] = {"extract": [], "predict": []}
    for _ in range(rounds):
        for one in (extract, predict):
            each[one.__name__].append((one(all_) - one(few)) / (images - BATCH))
    for stage, seconds in each.items():
        print(f"{stage}: {1000 * median(seconds):.2f} ms of processor an image")
    ratios = [p / e for e, p in zip(each["extract"], each["predict"], strict=True)]
    print(
        f"predict / extract: {', '.join(f'{r:.3f}' for r in ratios)}; median {median(ratios):.3f}"
    )


def memory(folder: Path) -> None:
    """Print peak memory of predictions from feature files of more and more rows."""
    rng = np.random.default_rng(0)
    head: Path | None = None
    for rows in (1_000, 20_000, 100_000):
        path = folder / f"{rows}.npz"
        y = np.arange(rows) % CLASSES
        x = rng.normal(size=(rows, 512)).astype(np.float32)
        np.savez(path, x=x, y=y)
        afltool("import", path, "-o", folder / "x.h5", "--overwrite")
        if head is None:
            total, head = folder / "t.h5", folder / "h.h5"
            afltool("local-stats", folder / "x.h5", "--client", "a", "--head", "linear", "--sum",
                    "-o", total)  # fmt: skip
            afltool("solve", total, "--ridge", 1, "-o", head)
        for kind, more in (("csv", []), ("csv", ["--scores"]), ("parquet", ["--scores"])):
            out = folder / f"p.{kind}"
            done = afltool("predict", head, folder / "x.h5", "-o", out, "--overwrite", *more)
            words = " ".join([kind, *more])
            print(f"{rows} rows, {words}: {done['peak_mb']} MB, {done['cpu_seconds']} s")


def steps(head: str, image: str) -> None:
    """Print the processor seconds of each step of a prediction of one image, in this process."""
    begun = time.process_time()
    found = {}

    def lap(name: str) -> None:
        nonlocal begun
        found[name] = time.process_time() - begun
        begun = time.process_time()

    import torch  # noqa: F401
    import torchvision  # noqa: F401

    lap("import torch, torchvision")
    from afltool.extraction import engines, space
    from afltool.files.heads import load_solved_head

    _, header = load_solved_head(Path(head))
    lap("import afltool, read the head")
    from afltool.backbones.models import load_backbone
    from afltool.extraction.torch_engine import prepare_for_inference

    asked = space.options_for(header["space"], weights="random", engine="torch")
    made = load_backbone(asked.backbone, weights="random", image_size=asked.image_size or 224)
    lap("build the network, digest its weights, try it")
    prepare_for_inference(made.module)
    lap("channels last")
    ready = engines.load_network(asked, space.get_preprocessing(header["space"]))
    begun = time.process_time()
    from afltool.datasets.from_paths import read_named

    images = read_named([image], sys.stdin)[0]
    list(ready.features(lambda i: ready.decode(images, i), range(1)))  # type: ignore[arg-type]
    lap("decode, a step of the network")
    print(json.dumps(found))


def cold(folder: Path, head: Path, backbone: list[object], image: Path, rounds: int) -> None:
    """Print what a prediction of one image takes from a fresh process, and the steps of PyTorch."""
    net = folder / "net.afl"
    afltool("backbone", backbone[1], *backbone[2:], "-o", net)
    named = ["--weights", "random"]
    cases = {"a frozen file": ["--backbone", net], "a kept graph": named,
             "PyTorch": [*named, "--engine", "torch"]}  # fmt: skip
    for name, more in cases.items():
        whole = [afltool("predict", head, image, *more) for _ in range(rounds)]
        print(f"one image, {name}: {median(one['cpu_seconds'] for one in whole):.2f} s of "
              f"processor, {median(one['seconds'] for one in whole):.2f} s on the clock, "
              f"{median(one['peak_mb'] for one in whole):.0f} MB")  # fmt: skip
    for name, seconds in json.loads(" ".join(fresh(__file__, str(head), str(image)))).items():
        print(f"  {name}: {seconds:.2f} s")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        steps(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--only", choices=("images", "cold", "memory"))
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["AFLTOOL_STORE"] = str(folder / "store")
        if given.only in (None, "images", "cold"):
            backbone = ["--backbone", given.backbone, "--weights", "random"]
            backbone += ["--image-size", given.size]
            photographs(folder / "few", BATCH)
            head = head_for(folder, backbone, folder / "few")
        if given.only in (None, "images"):
            images_a_second(folder, head, backbone, given.images, given.rounds)
        if given.only in (None, "cold"):
            cold(folder, head, backbone, next((folder / "few").rglob("*.jpg")), given.rounds)
        if given.only in (None, "memory"):
            memory(folder)


if __name__ == "__main__":
    main()
