"""Options of the stages that make feature files: extract, import, convert, split, and of scale."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..values.names import ROW_IDS
from ..values.text import PIXELS
from .base import File, Files, Holds, MayName, Options, Reads, Writes, fields_of, grammar
from .common import MOST, SEED, Output, Threads, data_in, frozen_in, table_in
from .datasets import DATASETS, absolute_dataset
from .grammars import (
    PENULTIMATE,
    STAGES,
    WHOLE,
    Node,
    Part,
    Views,
    one_plain_place,
    parse_nodes,
    parse_shard,
    parse_views,
)

Half = Literal["train", "test"]
BACKBONES = ("resnet18", "resnet50", "vit_b_16", "efficientnet_lite0", "timm:NAME")
AUTO, TORCH = "auto", "torch"  # engines; the others are `sources.extraction.engines.ENGINES`
GRAPH_ENGINES = ("onnxruntime", "openvino")


def absolute_backbone(text: str) -> str:
    """The same backbone from any folder."""
    return str(Path(text).absolute()) if frozen_in(text) else text


@dataclass(frozen=True, kw_only=True)
class NumberFormat(Options):
    """How feature values are stored."""

    _dtype = "type of the stored features; sums of int16 features are exact"
    dtype: Literal["int16", "float32"] = Field(default="int16", description=_dtype)
    _fraction_bits = "fraction bits of int16 features; with 9 the range is ±64"
    fraction_bits: int = Field(default=9, ge=0, le=15, description=_fraction_bits)

    @property
    def bits(self) -> int | None:
        """Fraction bits; None for float32."""
        return self.fraction_bits if self.dtype == "int16" else None

    def check(self) -> None:
        super().check()
        self.only_where({"fraction_bits"}, "dtype", "int16")


@dataclass(frozen=True, kw_only=True)
class RoundedFormat(NumberFormat):
    """How rows from outside are stored."""

    REFUSES: ClassVar = frozenset({"allow_constant"})

    _constant = "take features that vary and of which rounding leaves a single value"
    allow_constant: bool = Field(default=False, description=_constant)


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(Threads, RoundedFormat):
    """How features are converted."""


@dataclass(frozen=True)
class Convert(ConvertOptions, Output):
    """Write a feature file in another number format; fewer bits make smaller statistics."""

    STAGE: ClassVar = "stages.convert:convert"
    features: Annotated[File, Reads("features")] = Field(description="a feature file")
    out: Annotated[File, Writes("features")] = Field(description="feature file")


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """How rows are divided."""

    test: float = Field(
        default=0.2, gt=0, lt=1, description="share of the rows of each class for testing"
    )
    group: Annotated[str | None, Holds(table_in)] = Field(
        default=None,
        description="TABLE:COLUMN: rows of one value, such as one patient, stay together",
    )
    seed: int = Field(default=0, ge=0, le=SEED, description="seed of the draw")


@dataclass(frozen=True)
class Split(SplitOptions, Output):
    """Cut a feature file into NAME-train.h5 and NAME-test.h5, by rows or by groups of rows.

    Only row ids, labels and groups are used, so files of other backbones are cut alike.
    """

    STAGE: ClassVar = "stages.split:split"
    features: Annotated[File, Reads("features")] = Field(description="a feature file NAME.h5")
    out: Annotated[Path | None, Writes()] = Field(
        default=None, description="folder for the results (default: that of the file)"
    )


@dataclass(frozen=True)
class Merge(Output):
    """Put the shards of one extraction together; the file equals one made without shards."""

    STAGE: ClassVar = "stages.merge:merge"
    shards: Annotated[Files, Reads("features")] = Field(
        description="files, folders, globs, or - for stdin"
    )
    out: Annotated[File, Writes("features")] = Field(description="feature file")


@dataclass(frozen=True, kw_only=True)
class EmbeddingsOptions(Options):
    """What embeddings that another program made are called, and who made them."""

    x: str | None = Field(
        default=None, description="array, or column of lists, that holds the features (default: x)"
    )
    _y = "array or column that holds the labels"
    y: str | None = Field(default=None, description=_y + " (default: y; in .parquet also label)")
    _row_ids = (
        "array or column that holds the ids of the rows, by which --by, --group and "
        "--column of tables know them"
    )
    row_ids: str | None = Field(
        default=None, description=_row_ids + f" (default: {', '.join(ROW_IDS)}, else row/N)"
    )
    backbone: str = Field(
        default="import",
        description="name of what made the embeddings; only equal ones can be added up",
    )


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Threads, EmbeddingsOptions, RoundedFormat):
    """Options of `import`."""

    labels: Annotated[Path | None, Reads()] = Field(
        default=None, description="labels of a file without y: .npy, or text with one per line"
    )
    _classes = "file of class names in order, one per line; a federation shares it"
    classes: Path | tuple[str, ...] | None = Field(default=None, description=_classes)
    _scale = "scale features as this file of afltool scale --from says"
    scale: Annotated[Path | None, Reads("head")] = Field(default=None, description=_scale)
    _missing = (
        "values that are missing (NaN): the mean of all sites, which the scaling has; indicator: "
        "and a column of 0 and 1 for each feature that lacks some"
    )
    missing: Literal["refuse", "mean", "indicator"] = Field(default="refuse", description=_missing)
    unlabelled: bool = Field(
        default=False, description="leave labels out, for predict, also where the file has some"
    )

    def check(self) -> None:
        super().check()
        self.needs("missing", "scale")
        for name in ("y", "labels", "classes"):
            self.excludes(name, "unlabelled")


@dataclass(frozen=True)
class Import(ImportOptions, Output):
    """Make a feature file of embeddings that another program made.

    Its network must have been in evaluation mode: batch normalisation in training mode mixes rows,
    and heads then depend on who owns which rows.
    """

    STAGE: ClassVar = "stages.imports:import_embeddings"
    COMMON: ClassVar = frozenset(
        {"out", "x", "y", "row_ids", "classes", "labels", "scale", "missing", "dtype"}
        | {"fraction_bits"}
    )

    embeddings: Annotated[File, Reads()] = Field(
        description=".npz, .parquet or .safetensors with x and y, or .npy with --labels"
    )
    out: Annotated[File, Writes("features")] = Field(description="feature file")


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """Where the weights of a backbone come from."""

    _weights = "default (ImageNet), random, the name of published weights, or a file"
    weights: Annotated[str, MayName()] = Field(
        default="default", description=_weights, examples=["default", "random"]
    )
    seed: int = Field(default=0, ge=0, le=SEED, description="seed of random weights")

    def check(self) -> None:
        super().check()
        self.only_where({"seed"}, "weights", "random")


@dataclass(frozen=True, kw_only=True)
class SeenOptions(WeightsOptions):
    """What a frozen network sees of an image, and what it gives."""

    _node = (
        "where features are taken, NAME[:POOLING][*SCALE]: a layer or graph node, penultimate "
        "(what enters the classifier), or stages (that and the last stages); may be repeated: "
        "the features lie side by side; extract --list-nodes shows the names"
    )
    node: Annotated[tuple[str, ...], grammar(parse_nodes)] = Field(
        default=(), description=_node + f" (default: {PENULTIMATE})", examples=[PENULTIMATE, STAGES]
    )
    _preprocess = "paper: resize, mean 0.5, std 0.5; weights: as the weights were trained"
    preprocess: Literal["paper", "weights"] = Field(default="weights", description=_preprocess)
    _image_size = "side of the images that the network sees"
    image_size: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description=_image_size + " (default: that of the weights; 224 for paper)",
    )

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that ``node`` names; none for what enters the classifier."""
        return () if self.node == (PENULTIMATE,) else parse_nodes(self.node)


@dataclass(frozen=True, kw_only=True)
class FreezeOptions(SeenOptions):
    """What a file of a backbone has."""

    licence: str = Field(
        default="",
        description="licence of the weights, as it stands in the file (default: not told)",
    )


@dataclass(frozen=True)
class Backbone(FreezeOptions, Output):
    """Write a frozen network as one file, which extract and predict run without PyTorch."""

    STAGE: ClassVar = "stages.backbone:backbone"
    name: str = Field(description="resnet18, timm:NAME or another backbone, as extract has it")
    out: Annotated[File, Writes("backbone")] = Field(description="a file NAME.afl")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WeightsOptions):
    """Where the weights of a backbone come from, and how it runs."""

    EXECUTION_ONLY: ClassVar = frozenset({"batch_size", "device", "workers"})

    _batch_size = "images that are decoded together, and of torch one step of the network"
    batch_size: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description=_batch_size
        + " (default: 16 on a CPU, of other engines for each thread; 256 on a GPU)",
    )
    _device = "where the network runs"
    device: str = Field(
        default="auto", description=_device, examples=["auto", "cpu", "cuda", "cuda:1"]
    )
    _workers = "threads that decode images"
    workers: int | None = Field(
        default=None, ge=1, le=1024, description=_workers + " (default: one per core)"
    )
    _engine = (
        "what runs the network: auto takes onnxruntime on a processor, where it is installed and "
        "agrees with torch; the features of openvino are a space of their own"
    )
    engine: Literal["auto", "torch", "onnxruntime", "openvino"] = Field(
        default="auto", description=_engine
    )

    def check(self) -> None:
        super().check()
        if self.engine in GRAPH_ENGINES and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--engine {self.engine} runs on the processor: leave out --device {self.device}"
            )


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Threads, NetworkOptions, NumberFormat, SeenOptions):
    """What features are of."""

    SAID: ClassVar = frozenset({"split"})
    EXECUTION_ONLY: ClassVar = frozenset({"data_root", "store"})

    _threads = (
        "threads that run the network; only last bits with torch may depend on their number "
        "(default: as many as cores may be used)"
    )
    threads: int | None = Field(default=None, ge=1, le=MOST, description=_threads)
    backbone: Annotated[str, Holds(frozen_in, absolute_backbone)] = Field(
        description="the frozen network, or its file NAME.afl", examples=list(BACKBONES)
    )
    _data = f"images; {PIXELS}"
    data: Annotated[str, Holds(data_in, absolute_dataset)] = Field(
        default="cifar10", description=_data, examples=[one.shown for one in DATASETS.data.values()]
    )
    split: Half = Field(default="train", description="which images")
    _views = (
        "the features are the mean over views of an image: flip (and mirrored), crops:N "
        "(centre and corners of a larger picture, N from 2 to 5), flip+crops:N"
    )
    views: Annotated[str | None, grammar(parse_views)] = Field(
        default=None,
        description=_views + " (default: the image alone)",
        examples=["flip", "crops:5", "flip+crops:5"],
    )
    _shard = "I/N: part I (from 0) of N; see merge"
    shard: Annotated[str | None, grammar(parse_shard)] = Field(default=None, description=_shard)
    limit: int | None = Field(
        default=None,
        ge=1,
        description="at most this many images of a split, spread over the classes",
    )
    _classes = "file of class names in order, one per line; a federation shares it"
    classes: Path | tuple[str, ...] | None = Field(default=None, description=_classes)
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32", description="number format of the network's arithmetic"
    )
    _data_root = "folder where data sets lie or are downloaded to"
    data_root: Path | None = Field(
        default=None, description=_data_root + " (default: $AFLTOOL_DATA, else ./afl-data)"
    )
    path_column: str | None = Field(
        default=None,
        description="column of the images: of a table their paths, of parquet their bytes "
        "(default: path)",
    )
    label_column: str | None = Field(
        default=None,
        description="column of the labels; of WebDataset their key in JSON (default: label)",
    )
    _store = "folder of kept features; extract -o FILE then makes FILE a link to those in it"
    store: Path | None = Field(
        default=None, description=_store + " (default: $AFLTOOL_STORE, else ./afl-store)"
    )
    _skip_corrupt = "leave out images that cannot be read, and count them; what is done is kept"
    skip_corrupt: bool = Field(default=False, description=_skip_corrupt)
    _unlabelled = (
        "without labels, for predict: folders of images at any depth, tables without label"
    )
    unlabelled: bool = Field(default=False, description=_unlabelled)

    @property
    def part(self) -> Part:
        """The part of the images that ``shard`` means."""
        return WHOLE if self.shard is None else parse_shard(self.shard)

    @property
    def steady(self) -> bool:
        """Whether features have one digest for any batch size and number of threads.

        Those of one view and a single place are as ever: steps have the batch's size.
        """
        return self.views is not None or not one_plain_place(self.nodes)

    @property
    def seen(self) -> Views:
        """The views that ``views`` names; without it, the whole picture."""
        return Views() if self.views is None else parse_views(self.views)

    def check(self) -> None:
        super().check()
        self.excludes("classes", "unlabelled")


@dataclass(frozen=True, kw_only=True)
class Extract(ExtractOptions, Output):
    """Run images through a frozen backbone and keep the features, so they are made only once."""

    STAGE: ClassVar = "stages.extract:extract"
    COMMON: ClassVar = frozenset(
        {"out", "backbone", "data", "split", "weights", "image_size", "preprocess", "node"}
        | {"dtype", "device"}
    )

    out: Annotated[Path | None, Writes("features")] = Field(
        default=None, description="feature file (default: in the store)"
    )


@dataclass(frozen=True, kw_only=True)
class ExtractNodes(Extract):
    """Run images through a frozen backbone and keep the features, so they are made only once."""

    #: Options on which the nodes of a network depend.
    OF_NETWORKS: ClassVar = frozenset(
        {"backbone", "data", "image_size", "preprocess", "views", "weights", "node", "list_nodes"}
    )

    list_nodes: bool = Field(
        default=False, description="print what --node can name, and extract nothing"
    )

    def check(self) -> None:
        super().check()
        for name in fields_of(Extract).keys() - self.OF_NETWORKS:
            self.excludes(name, "list_nodes")


@dataclass(frozen=True, kw_only=True)
class UnitsOptions(Options):
    """How features are summed before they are scaled; all sites do it alike."""

    _bits = "values are summed as multiples of 2^-N, exactly; with 24 the range is ±8,388,608"
    unit_bits: int = Field(default=24, ge=0, le=40, description=_bits)


@dataclass(frozen=True, kw_only=True)
class ScaleOptions(Threads, UnitsOptions, EmbeddingsOptions):
    """Whose rows are summed."""

    REFUSES: ClassVar = frozenset({"min_rows"})

    client: str | None = Field(
        default=None, description="name of this site (default: that of the file)"
    )
    min_rows: int = Field(default=0, ge=0, description="refuse sums of fewer rows")


@dataclass(frozen=True)
class Scale(ScaleOptions, Output):
    """Sum up a site's features, so that all sites scale alike.

    Values may be missing (NaN). aggregate adds the sums up, solve makes the scaling of their total,
    and import --scale takes it.
    """

    STAGE: ClassVar = "stages.scale:scale"
    rows: Annotated[File, Reads()] = Field(
        description="a feature file, or embeddings as import takes them"
    )
    out: Annotated[File, Writes("statistics")] = Field(description="file of the sums")


def store_folder(options: ExtractOptions) -> Path:
    """The store that these options mean: the given one, $AFLTOOL_STORE, or ./afl-store."""
    return options.store or default_store()


def default_store() -> Path:
    return Path(os.environ.get("AFLTOOL_STORE") or "afl-store")
