"""Options of the stages that make feature files: extract, import, convert, split, and of scale."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from platformdirs import user_cache_path
from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..values.names import ROW_IDS
from ..values.text import PIXELS
from . import base
from .base import FileIn, FileOut, Holds, Input, Inputs, Options, Result, grammar, option
from .common import BEHIND_COLON, FROZEN_FILE, SEED, Column, Output, Threads
from .datasets import DATASETS
from .grammars import PENULTIMATE, STAGES, Node, Part, Views, parse_nodes, parse_part, parse_views

Unlabeled = Annotated[bool, base.Stored("unlabelled")]
Engine = Literal["auto", "torch", "onnxruntime", "openvino"]
Classes = Path | tuple[str, ...] | None
CLASSES = "file of class names in order, one per line; a federation shares it"
Missing = Literal["refuse", "mean", "indicator"]
Way = Literal["paper", "weights"]
PartText = Annotated[str | None, grammar(parse_part)]
ViewsText = Annotated[str | None, grammar(parse_views)]
CONSTANT = "take features of which rounding leaves a single value"
IMPORTED, MADE_BY = "import", "what made the features; only equal ones add up"
UNITS = "sums are of multiples of 2^-N, exactly; 24: up to ±8,388,608"
Seed = Annotated[int, Field(ge=0, le=SEED)]
FeaturesOut = Annotated[Result, Field(description="feature file")]
WEIGHTS = "default (ImageNet), random, the name of published weights, or a file"
NETWORK, DATA = "frozen network, or a file", [one.shown for one in DATASETS.data.values()]
BACKBONES = ("resnet18", "resnet50", "vit_b_16", "efficientnet_lite0", "timm:NAME",
             "open_clip:NAME", "hf:OWNER/NAME")  # fmt: skip
AUTO, TORCH = "auto", "torch"  # engines; the others are `extraction.engines.ENGINES`
GRAPH_ENGINES = ("onnxruntime", "openvino")


@dataclass(frozen=True, kw_only=True)
class NumberFormat(Options):
    """How feature values are stored."""

    dtype: Literal["int16", "float32"] = option("int16", "number format; sums of int16 are exact")
    fraction_bits: int = option(9, "fraction bits of int16; 9: ±64", ge=0, le=15)

    @property
    def bits(self) -> int | None:
        """Fraction bits; None for float32."""
        return self.fraction_bits if self.dtype == "int16" else None

    def check(self) -> None:
        self.only_where("fraction_bits", "dtype", "int16")


@dataclass(frozen=True)
class Convert(Threads, NumberFormat, Output):
    """Write a feature file in another number format; fewer bits make smaller statistics."""

    STAGE: ClassVar = "stages.rows:convert"
    REFUSES: ClassVar = frozenset({"allow_constant"})
    features: Input = Field(description="a feature file")
    out: FeaturesOut = Field()
    _: KW_ONLY
    allow_constant: bool = option(False, CONSTANT)


@dataclass(frozen=True)
class Split(Output):
    """Cut a feature file into NAME-train.h5 and NAME-test.h5, by rows or by groups of rows.

    Only row ids, labels and groups are used, so files of other backbones are cut alike.
    """

    STAGE: ClassVar = "stages.rows:split"
    features: Input = Field(description="a feature file NAME.h5")
    out: FileOut = option(None, "output directory (default: the input's)")
    _: KW_ONLY
    test_size: Annotated[float, base.Stored("test")] = option(
        0.2, "fraction of each class in the test set", gt=0, lt=1
    )
    group: Column = option(None, "keep rows of one value of TABLE:COLUMN together")
    seed: Seed = option(0, "random seed")


@dataclass(frozen=True)
class Merge(Output):
    """Put the shards of one extraction together; the file equals one made without shards."""

    STAGE: ClassVar = "stages.rows:merge"
    shards: Inputs = Field(description="files, folders, or -")
    out: FeaturesOut = Field()


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(Options):
    """What is read of embeddings or a table that another program made.

    A file's recipe has it as the names of the features in their space.
    """

    SELECTS: ClassVar = frozenset({"x", "row_ids", "feature_columns", "categories"})

    x: str | None = option(None, "array or column of features (default: x)")
    row_ids: str | None = option(None, f"row ids (default: {', '.join(ROW_IDS)}, else row/N)")
    feature_columns: tuple[str, ...] = option((), "feature columns COLUMN,… (default: numeric)")
    categories: tuple[str, ...] = option((), "one-hot text columns: COLUMN,… or COLUMN=VALUE,…")

    def check(self) -> None:
        for name in ("feature_columns", "categories"):
            self.excludes("x", name)


@dataclass(frozen=True, kw_only=True)
class NamedRows(ColumnOptions):
    """What is read of embeddings or a table with labels."""

    SELECTS: ClassVar = frozenset({"y"})

    y: str | None = option(None, "array or column of labels (default: y, label)")


@dataclass(frozen=True, kw_only=True)
class TableOptions(NamedRows, NumberFormat):
    """How a table or an archive is read where a feature file is expected; `import` has more."""

    SELECTS: ClassVar = frozenset({"dtype", "fraction_bits"})


@dataclass(frozen=True)
class Import(Threads, NamedRows, NumberFormat, Output):
    """Make a feature file of embeddings that another program made.

    Its network must have been in evaluation mode: batch normalization in training mode mixes rows,
    and heads then depend on who owns which rows.
    """

    STAGE: ClassVar = "stages.import_embeddings:import_embeddings"
    REFUSES: ClassVar = frozenset({"allow_constant"})
    COMMON: ClassVar = frozenset(
        {"out", "y", "row_ids", "feature_columns", "categories", "classes", "labels"}
        | {"unlabeled", "dtype", "fraction_bits"}
    )

    embeddings: Input = Field(description="a table, .npz, .safetensors or .npy")
    out: FeaturesOut = Field()
    _: KW_ONLY
    classes: Classes = option(None, CLASSES)
    labels: FileIn = option(None, "labels of a file without y: .npy or text")
    like: FileIn = option(None, "feature file whose columns, classes and format to use")
    scale: FileIn = option(None, "scaling file, made by scale and solve")
    missing: Missing = option("refuse", "NaN: the mean over all sites; indicator: plus a column")
    unlabeled: bool = option(False, "leave out labels")
    backbone: str = option(IMPORTED, MADE_BY)
    allow_constant: bool = option(False, CONSTANT)

    def check(self) -> None:
        self.needs("missing", "scale")
        for name in ("y", "labels", "classes"):
            self.excludes(name, "unlabeled")


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """Where the weights of a backbone come from."""

    weights: Annotated[str, Holds()] = option("default", WEIGHTS, examples=["default", "random"])
    seed: Seed = option(0, "seed of random weights")

    def check(self) -> None:
        self.only_where("seed", "weights", "random")


@dataclass(frozen=True, kw_only=True)
class SeenOptions(WeightsOptions):
    """What a frozen network sees of an image, and what it gives."""

    node: Annotated[tuple[str, ...], grammar(parse_nodes)] = option(
        (), "NAME[:POOLING][*SCALE], a layer to take features of (? lists them); may be repeated "
        f"(default: {PENULTIMATE})", examples=[PENULTIMATE, STAGES],
    )  # fmt: skip
    preprocess: Way = option("weights", "as the weights were trained, or as the released AFL code")
    image_size: int | None = option(None, "side, pixels (default: by --preprocess)", ge=1, le=4096)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that ``node`` names; none for what enters the classifier."""
        return () if self.node == (PENULTIMATE,) else parse_nodes(self.node)


@dataclass(frozen=True)
class Backbone(SeenOptions, Output):
    """Write a frozen network as one file, which extract and predict run without PyTorch."""

    STAGE: ClassVar = "stages.extract:backbone"
    name: str = Field(description="resnet18, timm:NAME or another backbone, as extract has it")
    out: Result = Field(description="a file NAME.afl")
    _: KW_ONLY
    license: str = option("", "license of the weights, as recorded in the file")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WeightsOptions):
    """Where the weights of a backbone come from, and how it runs."""

    EXECUTION_ONLY: ClassVar = frozenset({"device"})

    device: str = option("auto", "device, such as cpu, cuda or cuda:1")
    engine: Engine = option("auto", "inference engine; auto: onnxruntime if it agrees with PyTorch")

    def check(self) -> None:
        if self.engine in GRAPH_ENGINES and self.device not in ("auto", "cpu"):
            raise UsageError(f"--engine {self.engine} runs on the processor: leave out --device")


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Threads, NetworkOptions, NumberFormat, SeenOptions, Output):
    """Run images through a frozen backbone and keep the features, so they are made only once."""

    STAGE: ClassVar = "stages.extract:extract"
    COMMON: ClassVar = frozenset(
        {"out", "backbone", "data", "split", "weights", "image_size", "preprocess", "node"}
        | {"dtype", "device"}
    )
    EXECUTION_ONLY: ClassVar = frozenset({"data_root", "store"})

    out: FileOut = option(None, "output feature file (default: in the store)")
    backbone: Annotated[str, FROZEN_FILE] = Field(description=NETWORK, examples=list(BACKBONES))
    data: Annotated[str, BEHIND_COLON] = option("cifar10", f"images; {PIXELS}", examples=DATA)
    classes: Classes = option(None, CLASSES)
    y: str | None = option(None, "column of labels, of tables, parquet and hf (default: label)")
    split: Literal["train", "test"] = option("train", "split of the data set")
    views: ViewsText = option(None, "test-time views: flip, crops:N, flip+crops:N (default: none)")
    shard: PartText = option(None, "part I/N, I from 0; see merge")
    limit: int | None = option(None, "maximum number of images per split", ge=1)
    precision: Literal["fp32", "bf16", "fp16"] = option("fp32", "precision of the network")
    data_root: Path | None = option(None, "data sets (default: $AFLTOOL_DATA, else ./afl-data)")
    store: Path | None = option(None, "feature store (default: see afltool store)")
    skip_corrupt: bool = option(False, "skip images that cannot be read")
    unlabeled: Unlabeled = option(False, "extract without labels, for predict")

    @property
    def part(self) -> Part:
        """The part of the images that ``shard`` means."""
        return Part() if self.shard is None else parse_part(self.shard)

    @property
    def seen(self) -> Views:
        """The views that ``views`` names; without it, the whole picture."""
        return Views() if self.views is None else parse_views(self.views)

    def check(self) -> None:
        for name in ("y", "classes"):
            self.excludes(name, "unlabeled")


@dataclass(frozen=True)
class Scale(Threads, NamedRows, Output):
    """Sum up a site's features, so that all sites scale alike.

    Values may be missing (NaN). aggregate adds the sums up, solve makes the scaling of their total,
    and import --scale takes it.
    """

    STAGE: ClassVar = "stages.import_embeddings:scale"
    REFUSES: ClassVar = frozenset({"min_rows"})

    rows: Input = Field(description="a feature file, or what import takes")
    out: Result = Field(description="output directory")
    _: KW_ONLY
    backbone: str = option(IMPORTED, MADE_BY)
    unit_bits: int = option(24, UNITS, ge=0, le=40)
    client: str | None = option(None, "site name (default: taken from the file name)")
    min_rows: int = option(0, "refuse clients with fewer rows", ge=0)


def default_store() -> Path:
    """The store: $AFLTOOL_STORE, an ./afl-store that is there, else the user's cache folder."""
    if named := os.environ.get("AFLTOOL_STORE"):
        return Path(named)
    here = Path("afl-store")
    return here if here.is_dir() else user_cache_path("afltool")
