"""extract with every engine beside the plain loop (DataLoader, fp32, contiguous, batch 256).

python benchmarks/bench_extract.py [BACKBONE] [SIZE] [IMAGES] [--weights default] [--rounds 5]
    [--engines torch,onnxruntime,openvino,bf16,cuda,cuda-bf16]
    [--picture 32x32|500x375] [--kind jpg|png] [--parts] [--views] [--lie]
    [--deviation DATA]
                                             resnet18 224 512, every engine that is installed

The rounds alternate. With --parts decoding, resizing and the network alone, all together, and what
they could give if they shared all cores, 1 / (1/decode + 1/resize + 1/network). With --views the
seconds of an image for one view, two mirrored ones and five crops. With --lie decoding alone, of
the same pictures as JPEG in folders, tar and parquet, and as grey of 16 bits in PNG and DICOM. With
--deviation how many int16 values of a data set's training images differ from those of PyTorch.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow
import pydicom
import torch
from measure import alternately, machine
from PIL import Image
from pyarrow import parquet
from torchvision import datasets, transforms

import afltool
from afltool import parallel
from afltool.backbones.models import load_backbone
from afltool.datasets import open_dataset
from afltool.extraction.engines import is_installed, load_network
from afltool.extraction.request import ExtractionRequest
from afltool.files.features import open_features
from afltool.options.features import ExtractOptions
from afltool.options.grammars import parse_views
from afltool.stages import extract as stage

ENGINES: dict[str, dict[str, str]] = {
    "torch": {"engine": "torch", "device": "cpu"},
    "onnxruntime": {"engine": "onnxruntime"},
    "openvino": {"engine": "openvino"},
    "bf16": {"engine": "openvino", "precision": "bf16"},
    "cuda": {"engine": "torch", "device": "cuda"},
    "cuda-bf16": {"engine": "torch", "device": "cuda", "precision": "bf16"},
}


def photographs(folder: Path, images: int, kind: str, width: int, height: int) -> None:
    """Smooth random files in two classes."""
    rng = np.random.default_rng(0)
    for i in range(images):
        place = folder / "train" / f"class{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8))
        large = small.resize((width, height), Image.Resampling.BICUBIC)
        large.save(place / f"{i:05}.{kind}", quality=95)


def plain(a: argparse.Namespace, folder: Path) -> float:
    """Images a second of the loop that everybody writes first."""
    half = (0.5, 0.5, 0.5)
    steps = [transforms.Resize(a.size), transforms.CenterCrop(a.size)]
    prepare = transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(half, half)])
    data = datasets.ImageFolder(folder / "train", prepare)
    module = load_backbone(a.backbone, weights=a.weights, image_size=a.size).module
    begun = time.perf_counter()
    with torch.no_grad():
        loader = torch.utils.data.DataLoader(data, batch_size=256)
        np.save(folder / "plain.npy", np.concatenate([module(x).numpy() for x, _ in loader]))
    return len(data) / (time.perf_counter() - begun)


def given(a: argparse.Namespace, folder: Path, **more: str) -> ExtractOptions:
    return ExtractOptions(
        backbone=a.backbone, data=f"imagefolder:{folder}", weights=a.weights, image_size=a.size,
        store=folder / "store", **more,
    )  # fmt: skip


def ours(a: argparse.Namespace, folder: Path, engine: str) -> float:
    """Images a second of the stage, the building of the network left out as above."""
    return a.images / timed(a, folder, **ENGINES[engine])


def timed(a: argparse.Namespace, folder: Path, **more: str) -> float:
    """Seconds of the stage once its network is built."""
    found = []
    original = stage._Extraction.run

    def clocked(*args: object) -> None:
        begun = time.perf_counter()
        original(*args)
        found.append(time.perf_counter() - begun)

    stage._Extraction.run = clocked
    try:
        afltool.extract(
            backbone=a.backbone,
            data=f"imagefolder:{folder}",
            split="train",
            out=folder / "ours.h5",
            weights=a.weights,
            image_size=a.size,
            overwrite=True,
            **more,
        )
    finally:
        stage._Extraction.run = original
    return found[0]


def rate(work: Callable[[], object], images: int, rounds: int) -> float:
    """Images a second, the median."""
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        rates.append(images / (time.perf_counter() - begun))
    return statistics.median(rates)


def parts(a: argparse.Namespace, folder: Path, engine: str) -> None:
    """Decoding, resizing and the network alone, and all of it as it is and as it could be."""
    asked = ExtractionRequest.of(given(a, folder, **ENGINES[engine]))
    with parallel.thread_limit():
        network = load_network(asked.given, asked.preprocessing())
        dataset, every = asked.dataset, range(a.images)
        one, picture = network.decode(dataset, 0), dataset.load(0)

        def ahead(work: Callable[[int], object]) -> float:
            """Images a second of what the decoding threads do."""

            def run() -> None:
                with ThreadPoolExecutor(network.workers) as pool:
                    list(pool.map(work, every, chunksize=network.engine.batch))

            return rate(run, a.images, a.rounds)

        def through(decode: Callable[[int], np.ndarray]) -> float:
            return rate(lambda: list(network.features(decode, every)), a.images, a.rounds)

        found = {
            "decode": ahead(dataset.load),
            "resize": ahead(lambda _: network.preprocessing.pixels(picture)),
            "network": through(lambda _: one),
        }
        both = through(lambda i: network.decode(dataset, i))
    share = both * sum(1 / alone for alone in found.values())
    alone = "   ".join(f"{name} {images:7.0f}" for name, images in found.items())
    print(
        f"{engine:11} {alone}   together {both:7.0f} images/s = {share:.2f} of 1 / (1/decode + "
        "1/resize + 1/network)"
    )


def views(a: argparse.Namespace, folder: Path, engine: str) -> None:
    for name in ("", "flip", "crops:5"):
        more = {"views": parse_views(name)} if name else {}
        asked = ExtractionRequest.of(given(a, folder, **ENGINES[engine], **more))  # type: ignore[arg-type]
        with parallel.thread_limit():
            network = load_network(asked.given, asked.preprocessing())
            dataset = asked.dataset
            found = rate(
                lambda n=network, d=dataset: list(
                    n.features(lambda i: n.decode(d, i), range(a.images))
                ),
                a.images, a.rounds,
            )  # fmt: skip
        print(f"{engine:11} {name or 'one view':9} {1000 / found:7.2f} ms an image")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backbone", nargs="?", default="resnet18")
    parser.add_argument("size", nargs="?", type=int, default=224)
    parser.add_argument("images", nargs="?", type=int, default=512)
    parser.add_argument("--weights", default="random")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="torch,onnxruntime,openvino,bf16")
    parser.add_argument("--picture", default="32x32")
    parser.add_argument("--kind", choices=("jpg", "png"), default="jpg")
    parser.add_argument("--deviation", default="", metavar="DATA")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--views", action="store_true")
    parser.add_argument("--lie", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["AFLTOOL_STORE"] = str(folder / "store")
        chosen = [one for one in a.engines.split(",") if installed(one)]
        if a.deviation:
            deviation(a, folder, chosen)
            return
        photographs(folder, a.images, a.kind, *map(int, a.picture.split("x")))
        if a.lie:
            lie(a, folder)
            return
        print(machine(), f"torch {torch.__version__}, {parallel.available()} cores")
        for engine in chosen:
            if a.parts:
                parts(a, folder, engine)
            if a.views:
                views(a, folder, engine)
        if not (a.parts or a.views):
            compare(a, folder, chosen)


def deviation(a: argparse.Namespace, folder: Path, chosen: list[str]) -> None:
    """The share of int16 values that differ from PyTorch's, and the largest step."""

    def values(engine: str, **more: object) -> np.ndarray:
        made = afltool.extract(
            backbone=a.backbone,
            data=a.deviation,
            split="train",
            out=folder / f"{engine}{len(more)}.h5",
            weights=a.weights,
            image_size=a.size,
            limit=a.images,
            **ENGINES[engine],
            **more,
        )
        with open_features(made) as features:
            return features.read_stored(0, len(features)).astype(np.int32)

    print(machine(), f"{a.backbone} at {a.size}, {a.images} images of {a.deviation}")
    plain = values("torch")
    for engine in chosen:
        away = np.abs(values(engine) - plain)
        print(f"{engine:11} {np.mean(away > 0):.2e} of the values differ, by {away.max()} at most")


def lie(a: argparse.Namespace, folder: Path) -> None:
    """Images a second of one thread, wherever they lie; listing them is not counted."""
    rows = [(path.read_bytes(), path.parent.name) for path in sorted(folder.rglob("*.jpg"))]
    with tarfile.open(folder / "train.tar", "w") as tar:
        for i, (data, label) in enumerate(rows):
            for name, content in ((f"{i:05}.jpg", data), (f"{i:05}.cls", label.encode())):
                header = tarfile.TarInfo(name)
                header.size = len(content)
                tar.addfile(header, io.BytesIO(content))
    columns = {
        "image": [{"bytes": d, "path": None} for d, _ in rows],
        "label": [n for _, n in rows],
    }
    parquet.write_table(pyarrow.table(columns), folder / "train.parquet", row_group_size=100)
    for i, (data, label) in enumerate(rows):
        grey = np.asarray(Image.open(io.BytesIO(data)).convert("L")).astype(np.uint16) * 257
        for kind in ("png", "dcm"):
            (folder / kind / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(grey).save(folder / "png" / label / f"{i:05}.png")
        scan = pydicom.Dataset()
        scan.Rows, scan.Columns = grey.shape
        scan.BitsAllocated, scan.BitsStored, scan.HighBit = 16, 16, 15
        scan.SamplesPerPixel, scan.PixelRepresentation = 1, 0
        scan.PhotometricInterpretation, scan.PixelData = "MONOCHROME2", grey.tobytes()
        scan.SOPClassUID, scan.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", f"1.2.{i}"
        scan.file_meta = pydicom.dataset.FileMetaDataset()
        scan.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
        pydicom.dcmwrite(folder / "dcm" / label / f"{i:05}.dcm", scan, enforce_file_format=True)
    specs = [f"imagefolder:{folder}", f"webdataset:{folder / 'train.tar'}",
             f"parquet:{folder / 'train.parquet'}", f"imagefolder:{folder / 'png'}",
             f"dicom:{folder / 'dcm'}"]  # fmt: skip
    sets = [open_dataset(spec, "train") for spec in specs]
    work = [lambda one=one: [one.load(i) for i in range(len(one))] for one in sets]
    print(machine())
    for spec, seconds in zip(specs, alternately(*work, repeats=a.rounds), strict=True):
        print(f"{spec.replace(str(folder), ''):25} {a.images / seconds:7.0f} images/s")


def installed(engine: str) -> bool:
    name = ENGINES[engine]["engine"]
    if name == "torch":
        return ENGINES[engine]["device"] == "cpu" or torch.cuda.is_available()
    return is_installed(name)


def compare(a: argparse.Namespace, folder: Path, chosen: list[str]) -> None:
    for engine in chosen:  # the graph is made before the clock starts
        ours(a, folder, engine)
    loops, rates = [], {engine: [] for engine in chosen}
    for _ in range(a.rounds):
        loops.append(plain(a, folder))
        for engine in chosen:
            rates[engine].append(ours(a, folder, engine))
    loop = statistics.median(loops)
    print(f"{a.backbone} at {a.size}, {a.images} {a.kind} of {a.picture}, images a second")
    print(f"plain loop  {loop:7.1f}")
    for engine, found in rates.items():
        print(
            f"{engine:11} {statistics.median(found):7.1f}  {statistics.median(found) / loop:.1f}×"
        )


if __name__ == "__main__":
    main()
