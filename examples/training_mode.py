"""What does batch normalization in training mode cost gradient methods on "frozen" features?

PFLlib, in which the published rivals of AFL ran, calls `model.train()` before local training, and
its clients exchange parameters, not buffers. A backbone with batch normalization that is frozen by
`requires_grad = False` then normalizes each batch of a client by that batch, and is tested with
the client's own running statistics. This script makes such features and trains on them.

    python examples/training_mode.py FOLDER-WITH-train-AND-test -o training-mode

With --drop-last, --scheme dirichlet-pfl or --rounds 500, alone or together, it measures only those.

For each partition it writes features of the training rows, client by client in batches of 64 in
training mode, and of the test rows with three kinds of statistics:

    pretrained   those of the weights, as `afltool extract` has them
    even         running ones of a client; test rows are dealt evenly
    own          running ones of a client; a test row goes to a client in proportion to the
                 client's rows of its class, as in PFLlib's split of each client's own rows

A client's running statistics are the plain average over its batches, to which PFLlib's moving
average tends. The features of a training row are made once, not anew in each epoch.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from afltool.backbones.models import load_backbone

PARTITIONS = {
    "iid": ["--scheme", "iid"],
    "dirichlet 0.1": ["--scheme", "dirichlet", "--alpha", "0.1"],
    "dirichlet 0.05": ["--scheme", "dirichlet", "--alpha", "0.05"],
    "dirichlet 0.01": ["--scheme", "dirichlet", "--alpha", "0.01"],
}
PFL = {
    "dirichlet-pfl 0.1": ["--scheme", "dirichlet-pfl", "--alpha", "0.1"],
    "dirichlet-pfl 0.01": ["--scheme", "dirichlet-pfl", "--alpha", "0.01", "--top-up"],
}
TESTS = ("pretrained", "even", "own")
ROUNDS = 200


@dataclass(frozen=True)
class Rows:
    """Images of one split: ids, labels, and pixels as ``(n, 3, s, s)`` uint8."""

    ids: list[str]
    labels: np.ndarray
    pixels: torch.Tensor


def read(folder: Path, per_class: int, size: int) -> Rows:
    ids, labels, pixels = [], [], []
    for label, name in enumerate(sorted(one.name for one in folder.iterdir() if one.is_dir())):
        for path in sorted((folder / name).iterdir())[:per_class]:
            image = Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
            ids.append(f"{name}/{path.name}")
            labels.append(label)
            pixels.append(np.asarray(image))
    stacked = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()
    return Rows(ids, np.array(labels), stacked)


def batches(module: nn.Module, pixels: torch.Tensor, size: int = 64) -> Iterator[np.ndarray]:
    """Features of each batch in the mode in which ``module`` is."""
    with torch.inference_mode():
        for block in pixels.split(size):
            yield module((block.float() / 255 - 0.5) / 0.5).numpy()


def forget(module: nn.Module) -> None:
    """Empty running statistics; the next batches in training mode are averaged into them."""
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.reset_running_stats()
            one.momentum = None


def client_by_client(
    fresh: Callable[[], nn.Module], train: Rows, test: Rows, owner: np.ndarray, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Features: training rows in training mode, test rows by running statistics."""
    draw = np.random.default_rng(seed)
    clients = owner.max() + 1
    dealt = {
        "even": draw.permutation(np.arange(len(test.ids)) % clients),
        "own": _by_class(draw, train.labels, owner, test.labels),
    }
    module, made = fresh(), np.empty((len(train.ids), 1280), np.float32)
    tested = {name: np.empty((len(test.ids), 1280), np.float32) for name in dealt}
    for client in range(clients):
        mine = draw.permutation(np.flatnonzero(owner == client))
        forget(module)
        module.train()
        if len(mine):
            made[mine] = np.concatenate(list(batches(module, train.pixels[mine])))
        else:  # a client without rows never trains; PFLlib would test it with the pretrained ones
            module.load_state_dict(fresh().state_dict())
        module.eval()
        for name, whose in dealt.items():
            rows = np.flatnonzero(whose == client)
            if len(rows):
                tested[name][rows] = np.concatenate(list(batches(module, test.pixels[rows])))
    return made, tested


def _by_class(
    draw: np.random.Generator, labels: np.ndarray, owner: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """A client for each test row, drawn from the owners of the training rows of its class."""
    return np.array([draw.choice(owner[labels == label]) for label in wanted])


def afltool(*words: object) -> str:
    return subprocess.run(
        [sys.executable, "-m", "afltool", *map(str, words)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def import_rows(features: np.ndarray, rows: Rows, path: Path) -> None:
    """Make a feature file of them."""
    raw = path.with_suffix(".npz")
    np.savez(raw, x=features, y=rows.labels, row_ids=np.array(rows.ids))
    afltool("import", raw, "--allow-constant", "--overwrite", "-o", path)
    raw.unlink()


def dealt(words: list[str], clients: int, features: Path, path: Path) -> dict[str, int]:
    """Write the partition to ``path``; the client of each row, by row id."""
    table = path.with_suffix(".csv")
    if not table.exists():
        options = [*words, "--clients", clients, "--overwrite", "-o", path, "--export", table]
        afltool("partition", features, *options)
    with table.open(newline="") as file:
        return {row["row"]: int(row["client"]) for row in csv.DictReader(file)}


class Results:
    """Top-1 in percent, by name; each is measured once and kept in results.json."""

    def __init__(self, out: Path) -> None:
        self.out, self.path = out, out / "results.json"
        self.measured = json.loads(self.path.read_text()) if self.path.exists() else {}

    def measure(self, name: str, *words: object) -> None:
        if name not in self.measured:
            result = json.loads(afltool(*words, "-o", self.out / "work", "--overwrite", "--json"))
            best = result.get("accuracies", {}).get("best_on_test_rows", result)["top1"]
            self.measured[name] = {"last": 100 * result["top1"], "best": 100 * best}
            self.path.write_text(json.dumps(self.measured, indent=1) + "\n")
        one = self.measured[name]
        print(f"{name:60} {one['last']:6.2f} (best round {one['best']:6.2f})", flush=True)

    def afl(self, name: str, train: Path, test: Path) -> None:
        given = ["--train-features", train, "--test-features", test]
        self.measure(
            f"AFL, {name}", "run", *given, "--scheme", "iid", "--clients", 1, "--ridge", "auto"
        )

    def fedavg(self, name: str, files: tuple[Path, Path, Path], rounds: int, drop: bool) -> None:
        """With ``files``: training and test features, and the partition."""
        train, test, partition = files
        name += ", drop-last" * drop + f", {rounds} rounds" * (rounds != ROUNDS)
        options = ["--partition", partition, "--test", test, "--rounds", rounds]
        options += ["--drop-last"] * drop
        self.measure(f"FedAvg, {name}", "baseline", "fedavg", train, *options)


def main() -> None:
    kept = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kept)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("training-mode"))
    parser.add_argument("--train-per-class", type=int, default=2000)
    parser.add_argument("--test-per-class", type=int, default=500)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--drop-last", action="store_true", help="FedAvg with --drop-last alone")
    parser.add_argument("--seed", type=int, default=0)
    every = PARTITIONS | PFL
    parser.add_argument("--partitions", nargs="+", default=list(every), choices=list(every))
    schemes = list(dict.fromkeys(words[1] for words in every.values()))
    parser.add_argument("--scheme", choices=schemes, help="only the partitions of this scheme")
    args = parser.parse_args()
    partitions = [name for name in args.partitions if args.scheme in (None, every[name][1])]
    if not partitions:
        parser.error(f"--scheme {args.scheme} has none of --partitions {args.partitions}")
    args.out.mkdir(parents=True, exist_ok=True)
    train = read(args.data / "train", args.train_per_class, args.image_size)
    test = read(args.data / "test", args.test_per_class, args.image_size)

    def fresh() -> nn.Module:
        return load_backbone("efficientnet_lite0", image_size=args.image_size).module

    check_control(train.pixels[:64])
    results, plain = Results(args.out), {}
    for name, rows in {"train": train, "test": test}.items():
        path = args.out / f"plain-{name}.h5"
        if not path.exists():
            import_rows(np.concatenate(list(batches(fresh(), rows.pixels))), rows, path)
        plain[name] = path
    results.afl("ordinary features", plain["train"], plain["test"])
    drops = [True] if args.drop_last else [False, True]
    for name in partitions:
        partition = args.out / f"{name.replace(' ', '-')}-{args.seed}.h5"
        words = [*every[name], "--seed", str(args.seed)]
        owners = dealt(words, args.clients, plain["train"], partition)
        pair = (plain["train"], plain["test"], partition)
        for drop in drops:
            results.fedavg(f"ordinary features, {name}", pair, args.rounds, drop)
        if name in ("iid", "dirichlet 0.1") and not args.drop_last:
            results.fedavg(f"ordinary features, {name}", pair, 500, drop=False)
        if name not in PARTITIONS:
            continue
        files = {test: args.out / f"{partition.stem}-{test}.h5" for test in ("train", *TESTS)}
        if not files["own"].exists():
            owner = np.array([owners[row] for row in train.ids])
            made, tested = client_by_client(fresh, train, test, owner, args.seed)
            import_rows(made, train, files["train"])
            for which, features in tested.items():
                import_rows(features, test, files[which])
        files["pretrained"] = plain["test"]
        for which in TESTS:
            what = f"training mode, {name}, test {which}"
            results.afl(what, files["train"], files[which])
            for drop in drops:
                results.fedavg(what, (files["train"], files[which], partition), args.rounds, drop)


def check_control(pixels: torch.Tensor) -> None:
    """A network without batch normalization has the same features in both modes."""
    module = load_backbone("timm:vit_tiny_patch16_224", weights="random").module
    large = nn.functional.interpolate(pixels, size=(224, 224))
    evaluating = np.concatenate(list(batches(module, large)))
    training = np.concatenate(list(batches(module.train(), large)))
    largest = abs(training - evaluating).max()
    print(f"control, a ViT with random weights: largest difference of features {largest}")


if __name__ == "__main__":
    main()
