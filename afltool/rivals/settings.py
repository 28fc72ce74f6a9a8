"""What a baseline is told and the names of its files; light enough for the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files import schema
from ..options import Options, option

PRESETS: dict[str, dict[str, Any]] = {
    # He et al., CVPR 2025, appendix E; Tang et al., ICLR 2026, "consistent settings".
    name: {"rounds": 500, "lr": 0.05, "epochs": 1, "batch_size": 64, "participation": 1.0}
    for name in ("afl", "deepafl")
}
MOST = 10**5  # rounds and epochs; every round has an entry in the head's header


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """Options of every method; the module of a method adds its own options."""

    rounds: int = option(500, "rounds of communication R", at_least=1, at_most=MOST)
    lr: float = option(0.05, "learning rate η of the clients", above=0)
    lr_decay: float = option(1.0, "factor of η from round to round", above=0, at_most=1)
    epochs: int = option(1, "local epochs of a round", at_least=1, at_most=MOST)
    batch_size: int = option(
        64, "rows of a batch; 0: all rows of the client", at_least=0, at_most=2**24
    )
    momentum: float = option(
        0.0, "momentum of the local descent, which starts again in every round", at_least=0, below=1
    )
    weight_decay: float = option(0.0, "λ of the penalty λ/2 ‖W‖² in every local step", at_least=0)
    participation: float = option(
        1.0, "share of the clients that takes part, drawn every round", above=0, at_most=1
    )
    average: str = option(
        "rows",
        "weights of the clients in the average: their rows, or all equal",
        choices=("rows", "uniform"),
    )
    drop_last: bool = option(
        False, "leave short batches out, as PFLlib: a client below one batch never trains"
    )
    no_bias: bool = option(False, "no constant feature at the last layer")
    layers: int | None = option(
        None, "trainable layers", at_least=1, at_most=100, unset="1, a linear head; 2 with --hidden"
    )
    hidden: int | None = option(
        None, "width of hidden layers", at_least=1, at_most=2**16, unset="1024 with --layers 2 …"
    )
    every: int = option(
        1, "rounds from one measurement of the accuracy to the next", at_least=1, at_most=MOST
    )
    seed: int = option(
        0,
        "seed of batches, participants, starts and generated features",
        at_least=0,
        at_most=2**32 - 1,
    )

    def check(self) -> None:
        if self.layers == 1 and self.hidden is not None:
            raise UsageError("--layers 1 has no hidden layer: leave --hidden out")

    def widths(self, dim: int, classes: int) -> tuple[int, ...]:
        """(d, h, …, C) of the classifier."""
        layers = self.layers or (1 if self.hidden is None else 2)
        return (dim, *[self.hidden or 1024] * (layers - 1), classes)

    def rate(self, round: int) -> float:
        """η of a round, counted from 1."""
        return self.lr * self.lr_decay ** (round - 1)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(Options):
    """What every baseline is run on."""

    partition: Path = option(help="who owns which row")
    test: Path = option(help="features with labels to measure the accuracy on")
    preset: str | None = option(
        None, "a paper's settings; options given beside it win", choices=("afl", "deepafl")
    )
    threads: int | None = option(
        None,
        "clients trained at the same time",
        at_least=1,
        at_most=4096,
        unset="one per core",
        in_result=False,
    )


class BaselineFolder:
    """Names of the files of a baseline; `afltool.plans.layout` has those of a run."""

    SUMMARY = schema.SUMMARY
    HEAD = "head.h5"
    HELD_OUT_HEAD = "head-held-out.h5"
    ROUNDS = "rounds.csv"
    CHECKPOINT = "checkpoint.h5"
    WRITES = (SUMMARY, HEAD, HELD_OUT_HEAD, ROUNDS, CHECKPOINT)
