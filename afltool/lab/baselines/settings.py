"""What a baseline is told and the names of its files; light enough for the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...files import schema
from ...options.base import File, Flat, Options, Reads, Writes, option
from ...options.common import Output, Threads

# He et al., CVPR 2025, appendix E; Tang et al., ICLR 2026, "consistent settings".
_APPENDIX_E = {"rounds": 500, "lr": 0.05, "epochs": 1, "batch_size": 64, "participation": 1.0}
PRESETS: dict[str, dict[str, Any]] = {"afl": _APPENDIX_E, "deepafl": _APPENDIX_E}
MOST = 10**5  # rounds and epochs; every round has an entry in the head's header


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """Options of every method; the module of a method adds its own options."""

    GONE: ClassVar[Mapping[str, Any]] = {}  # what recipes say of options that there were

    rounds: int = option(500, "rounds of communication R", ge=1, le=MOST)
    lr: float = option(0.05, "learning rate η of the clients", gt=0)
    lr_decay: float = option(1.0, "factor of η from round to round", gt=0, le=1)
    epochs: int = option(1, "local epochs of a round", ge=1, le=MOST)
    batch_size: int = option(64, "batch size; 0: all rows of the client", ge=0, le=2**24)
    momentum: float = option(0.0, "momentum; it starts again in each round", ge=0, lt=1)
    weight_decay: float = option(0.0, "λ of the penalty λ/2 ‖W‖² in each step", ge=0)
    participation: float = option(1.0, "share of the clients drawn in each round", gt=0, le=1)
    average: Literal["rows", "uniform"] = option("rows", "client weights")
    drop_last: bool = option(False, "drop incomplete batches, as PFLlib does")
    no_bias: bool = option(False, "no constant feature at the last layer")
    layers: int | None = option(None, "layers to train (default: 1; 2 with --hidden)", ge=1, le=100)
    hidden: int | None = option(None, "width of hidden layers (default: 1024)", ge=1, le=2**16)
    every: int = option(1, "rounds between measurements of the accuracy", ge=1, le=MOST)
    seed: int = option(0, "seed of batches, participants and starts", ge=0, le=2**32 - 1)

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
class BaselineOptions(Threads):
    """What every baseline is run on."""

    partition: Annotated[Path, Reads("partition")] = Field(description="partition file")
    test: Annotated[Path, Reads("features")] = Field(description="features to measure accuracy on")
    preset: Literal["afl", "deepafl"] | None = option(None, "a paper's settings; given options win")


@dataclass(frozen=True)
class Baseline(BaselineOptions, Output):
    """Train a baseline by gradients on cached features, simulated on this machine."""

    STAGE: ClassVar = "lab.baselines.stage:baseline"
    method: str = Field(description="name of the method")
    features: Annotated[File, Reads("features")] = Field(description="feature file of all clients")
    out: Annotated[File, Writes("run")] = Field(description="run folder")
    settings: Annotated[dict[str, Any], Flat("lab.baselines.commands:method_parameters")] = Field(
        default_factory=dict, kw_only=True, description="options of the method"
    )


class BaselineFolder:
    """Names of the files of a baseline; `afltool.runs.folder` has those of a run."""

    SUMMARY = schema.SUMMARY
    HEAD = "head.h5"
    HELD_OUT_HEAD = "head-held-out.h5"
    ROUNDS = "rounds.csv"
    WRITES = (SUMMARY, HEAD, HELD_OUT_HEAD, ROUNDS)
