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
from ...options.base import File, Flat, Options, Reads, Writes
from ...options.common import Output, Threads

# He et al., CVPR 2025, appendix E; Tang et al., ICLR 2026, "consistent settings".
_APPENDIX_E = {"rounds": 500, "lr": 0.05, "epochs": 1, "batch_size": 64, "participation": 1.0}
PRESETS: dict[str, dict[str, Any]] = {"afl": _APPENDIX_E, "deepafl": _APPENDIX_E}
MOST = 10**5  # rounds and epochs; every round has an entry in the head's header


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """Options of every method; the module of a method adds its own options."""

    GONE: ClassVar[Mapping[str, Any]] = {}  # what recipes say of options that there were

    rounds: int = Field(default=500, ge=1, le=MOST, description="rounds of communication R")
    lr: float = Field(default=0.05, gt=0, description="learning rate η of the clients")
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="factor of η from round to round")
    epochs: int = Field(default=1, ge=1, le=MOST, description="local epochs of a round")
    batch_size: int = Field(64, ge=0, le=2**24, description="rows of a batch; 0: all of the client")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum; it starts again in each round")
    weight_decay: float = Field(0.0, ge=0, description="λ of the penalty λ/2 ‖W‖² in each step")
    _share = "share of the clients that takes part, drawn every round"
    participation: float = Field(default=1.0, gt=0, le=1, description=_share)
    average: Literal["rows", "uniform"] = Field("rows", description="weights of the clients")
    drop_last: bool = Field(False, description="leave short batches out, as PFLlib does")
    no_bias: bool = Field(default=False, description="no constant feature at the last layer")
    _layers = "trainable layers (default: 1, a linear head; 2 with --hidden)"
    layers: int | None = Field(default=None, ge=1, le=100, description=_layers)
    _hidden = "width of hidden layers (default: 1024 with --layers 2 …)"
    hidden: int | None = Field(default=None, ge=1, le=2**16, description=_hidden)
    every: int = Field(1, ge=1, le=MOST, description="rounds between measurements of the accuracy")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="seed of batches, participants and starts")

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

    partition: Annotated[Path, Reads("partition")] = Field(description="who owns which row")
    _test = "features with labels to measure the accuracy on"
    test: Annotated[Path, Reads("features")] = Field(description=_test)
    _preset = "a paper's settings; options given beside it win"
    preset: Literal["afl", "deepafl"] | None = Field(default=None, description=_preset)


@dataclass(frozen=True)
class Baseline(BaselineOptions, Output):
    """Train a baseline by gradients on cached features, simulated on this machine."""

    STAGE: ClassVar = "lab.baselines.stage:baseline"
    method: str = Field(description="name of the method")
    features: Annotated[File, Reads("features")] = Field(description="features of all clients")
    out: Annotated[File, Writes("run")] = Field(description="run folder")
    settings: Annotated[dict[str, Any], Flat("lab.baselines.commands:of_method")] = Field(
        default_factory=dict, kw_only=True, description="options of the method"
    )


class BaselineFolder:
    """Names of the files of a baseline; `afltool.runs.folder` has those of a run."""

    SUMMARY = schema.SUMMARY
    HEAD = "head.h5"
    HELD_OUT_HEAD = "head-held-out.h5"
    ROUNDS = "rounds.csv"
    WRITES = (SUMMARY, HEAD, HELD_OUT_HEAD, ROUNDS)
