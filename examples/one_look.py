"""One look further at features of one backbone: what else might move the frontier, measured once.

    python examples/one_look.py TRAIN.h5 TEST.h5 [--looks ridges balance]
    python examples/one_look.py TRAIN.h5 TEST.h5 --looks scores --other TRAIN2.h5 TEST2.h5
    python examples/one_look.py --covariances OUT.npz --data imagefolder:PATH --split train
    python examples/one_look.py TRAIN.h5 TEST.h5 --looks slice --other COV-TRAIN.h5 COV-TEST.h5

- ridges: a ridge of each class instead of one;
- balance: rows weighed by 1/n_c (or its root) where classes are 20 : 1, against what the server can
  do from plain sums, scores divided by powers of the class counts;
- scores: the mean of the scores of two heads, on two backbones' features of the same images;
- slice: other features of the same images beside these, such as --covariances: the covariance over
  positions of the last stage, projected to 32 directions that are agreed beforehand (528 numbers).

AFL's head has an intercept, and its ridge is chosen by held-out clients: ten of 100 Dirichlet(0.1)
clients. Printed are top-1 of the held-out clients' rows and of the test rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from one_head import Data, started
from sweep import Sums

from afltool.files.features import open_features
from afltool.heads.checks import with_options
from afltool.heads.problem import Problem, fraction_bits
from afltool.math.gram import FixedPoint, real
from afltool.math.ridge import gram_matrix
from afltool.values.names import CROSS, GRAM

F64 = NDArray[np.float64]
AFL = {"intercept": True, "ridge": "auto"}
SIDE, BATCH = 32, 16  # directions of the covariance, images at a time
STAGE = "blocks.6"
RATIO = 20.0  # rows of the most frequent class for each of the rarest


class Fitted:
    """AFL's head on some features: without the held-out clients, and from all of them."""

    def __init__(self, data: Data) -> None:
        self.data, self.apart = data, np.flatnonzero(data.held_out[data.client])
        head = started(data, "linear", AFL)
        self.kept, self.held, self.whole = Sums().of(data, [], head, 0)
        self.chosen, done = head.absorb(self.kept, self.held)
        self.ridge = float(done.head["ridge"])
        self.last, _ = with_options(head, ridge=self.ridge).absorb(self.whole)

    def scores(self) -> tuple[F64, F64]:
        """Of the held-out rows without them, and of the test rows."""
        return self.chosen.decision_function(self.data.X[self.apart]), self.last.decision_function(
            self.data.test
        )

    def say(self, what: str, held: F64, test: F64) -> None:
        tops = [
            (scores.argmax(1) == y).mean()
            for scores, y in ((held, self.data.y[self.apart]), (test, self.data.truth))
        ]
        print(f"| {what} | {100 * tops[0]:.2f} | {100 * tops[1]:.2f} |", flush=True)


# ---------------------------------------------------------------- looks that need nothing else


def ridges(fitted: Fitted) -> None:
    """A ridge of each class: the least squared error of its column on the held-out rows."""
    fitted.say(f"one ridge, {fitted.ridge:.3g}", *fitted.scores())
    tried = np.geomspace(fitted.ridge / 100, fitted.ridge * 100, 17)
    kept, whole = (Problem.of(sums, intercept=True) for sums in (fitted.kept, fitted.whole))
    every = np.stack([kept.with_intercept(kept.system.spectral.weights(r)) for r in tried])
    rows = real(fitted.data.X[fitted.apart])
    scores = rows @ every[:, :-1] + every[:, -1:]
    wanted = np.eye(scores.shape[2])[fitted.data.y[fitted.apart]]
    best = ((scores - wanted) ** 2).sum(axis=1).argmin(axis=0)
    last = [whole.with_intercept(whole.system.spectral.weights(tried[b])) for b in best]
    W = np.stack([w[:, c] for c, w in enumerate(last)], axis=1)
    held = np.stack([scores[b, :, c] for c, b in enumerate(best)], axis=1)
    told = ", ".join(f"{tried[b]:.3g}" for b in best)
    fitted.say(f"a ridge of each class: {told}", held, real(fitted.data.test) @ W[:-1] + W[-1])


def balance(data: Data) -> None:
    """The same with rows of class c thinned to RATIO^(−c/(C − 1)); the test rows are balanced."""
    classes = len(data.classes)
    rng = np.random.RandomState(0)
    keep = rng.uniform(size=len(data.y)) < RATIO ** (-data.y / (classes - 1))
    thin = replace(data, X=data.X[np.flatnonzero(keep)], y=data.y[keep], client=data.client[keep])
    fitted = Fitted(thin)
    counts = np.bincount(thin.y, minlength=classes)
    held, test = fitted.scores()
    seen = counts / counts.sum()
    for power in (0.0, 0.25, 0.5, 1.0):
        fitted.say(f"classes {RATIO:g} : 1, scores over n_c^{power:g}", held / seen**power,
                   test / seen**power)  # fmt: skip
    for power in (0.5, 1.0):
        weights = (len(thin.y) / classes / counts) ** power
        held, test = weighed(fitted, weights)
        fitted.say(f"classes {RATIO:g} : 1, rows over n_c^{power:g}", held, test)


def weighed(fitted: Fitted, weights: F64) -> tuple[F64, F64]:
    """Scores of heads of weighed rows: sums of each class, times its weight, then as ever."""
    data, head = fitted.data, started(fitted.data, "linear", AFL)
    bits = fraction_bits(fitted.whole) or 0
    kept = ~data.held_out[data.client]
    found: list[F64] = []
    for rows in (kept, np.full(len(data.y), True)):
        G, H = np.zeros(()), np.zeros(())
        for c, weight in enumerate(weights):
            part = head.gather(data.blocks(np.flatnonzero(rows & (data.y == c))))[0]
            G = G + weight * gram_matrix(part.arrays[GRAM], bits)
            H = H + weight * part.arrays[CROSS] * 2.0**-bits
        number = (weights * np.bincount(data.y[rows], minlength=len(weights))).sum()
        counts = weights * np.bincount(data.y[rows], minlength=len(weights))
        problem = Problem(G, H, number, counts, intercept=True)
        W = problem.with_intercept(problem.system.spectral.weights(fitted.ridge))
        X = data.test if len(found) else data.X[fitted.apart]
        found.append(real(X) @ W[:-1] + W[-1])
    return found[0], found[1]


# ---------------------------------------------------------------- looks at two pairs of files


def scores(fitted: Fitted, other: Fitted) -> None:
    fitted.say("these features", *fitted.scores())
    fitted.say("the other ones", *other.scores())
    both = [(a + b) / 2 for a, b in zip(fitted.scores(), other.scores(), strict=True)]
    fitted.say("mean of both heads' scores", *both)


def beside(fitted: Fitted, data: Data) -> None:
    fitted.say(f"these features, {fitted.data.X.dim}", *fitted.scores())
    bits = min(data.X.bits, fitted.data.X.bits)
    mine, other = fitted.data.converted(bits), data.converted(bits)
    pairs = ((mine.X, other.X), (mine.test, other.test))
    X, test = (FixedPoint(np.hstack([a.values, b.values]), bits) for a, b in pairs)
    space = {"dim": X.dim, "dtype": "int16", "fraction_bits": bits}
    wide = Fitted(replace(mine, X=X, test=test, space=space))
    wide.say(f"with the other ones beside, {X.dim}", *wide.scores())


def covariances(spec: str, split: str, limit: int | None, size: int, out: Path) -> None:
    """Covariances over positions of the last stage, as OUT.npz for `afltool import`."""
    import torch

    from afltool.backbones.models import load_backbone
    from afltool.backbones.preprocessing import paper_preprocessing
    from afltool.datasets import open_dataset
    from afltool.extraction.torch_engine import prepare_for_inference

    dataset = open_dataset(spec, split, data_root=None, limit=limit)
    preprocessing = paper_preprocessing(size)
    plain = load_backbone("efficientnet_lite0", image_size=size).module
    module = prepare_for_inference(plain)
    caught: list[torch.Tensor] = []
    stages = [layer for name, layer in module.named_modules() if name.endswith(STAGE)]
    stages[0].register_forward_hook(lambda _m, _x, y: caught.append(y))
    drawn = np.linalg.qr(np.random.RandomState(0).standard_normal((320, SIDE)))[0]
    directions, (at, to) = torch.from_numpy(drawn).float(), torch.tril_indices(SIDE, SIDE)
    rows = []
    with torch.inference_mode():
        for start in range(0, len(dataset), BATCH):
            numbers = range(start, min(start + BATCH, len(dataset)))
            pixels = torch.stack(
                [torch.from_numpy(preprocessing.pixels(dataset.load(i))) for i in numbers]
            )
            caught.clear()
            module(preprocessing.normalize(pixels))
            x = caught[0].flatten(2).transpose(1, 2) @ directions  # (n, positions, SIDE)
            x = x - x.mean(dim=1, keepdim=True)
            products = x.transpose(1, 2) @ x / x.shape[1]
            triangle = products[:, at, to]
            rows.append((triangle.sign() * triangle.abs().sqrt()).numpy())
    np.savez(out, x=np.concatenate(rows), y=np.asarray(dataset.labels))


# ---------------------------------------------------------------- what was asked


def read(train: Path, test: Path) -> Data:
    with open_features(train) as rows, open_features(test) as others:
        return Data.of(rows, others, 100, 0.1)


def aligned(data: Data, other: Data) -> Data:
    """The other features with the same clients; both files must have the same images in order."""
    if not (np.array_equal(data.y, other.y) and np.array_equal(data.truth, other.truth)):
        raise SystemExit("the two pairs of files do not have the same rows")
    return replace(other, client=data.client, held_out=data.held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", help="TRAIN.h5 TEST.h5")
    parser.add_argument("--looks", nargs="+", default=["ridges", "balance"])
    parser.add_argument("--other", type=Path, nargs=2)
    parser.add_argument("--covariances", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--split", default="train")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--image-size", type=int, default=128)
    a = parser.parse_args()
    if a.covariances:
        return covariances(a.data, a.split, a.limit, a.image_size, a.covariances)
    data = read(*a.files)
    print("| what | held-out top-1, % | test top-1, % |\n| --- | --- | --- |")
    if "balance" in a.looks:
        balance(data)
    looks: dict[str, Callable[[Fitted], None]] = {"ridges": ridges}
    if a.other:
        other = aligned(data, read(*a.other))
        looks["scores"] = lambda fitted: scores(fitted, Fitted(other))
        looks["slice"] = lambda fitted: beside(fitted, other)
    wanted = [look for name, look in looks.items() if name in a.looks]
    fitted = Fitted(data) if wanted else None
    for look in wanted:
        assert fitted is not None
        look(fitted)
    return None


if __name__ == "__main__":
    main()
