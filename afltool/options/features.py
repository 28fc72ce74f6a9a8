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
from .base import (
    File,
    FileIn,
    FileOut,
    Files,
    Holds,
    Options,
    Reads,
    Writes,
    fields_of,
    grammar,
)
from .common import BEHIND_COLON, FROZEN_FILE, MOST, SEED, Column, Output, Printed, Threads
from .datasets import DATASETS
from .grammars import PENULTIMATE, STAGES, Node, Part, Views, parse_nodes, parse_part, parse_views

Half = Literal["train", "test"]
Engine = Literal["auto", "torch", "onnxruntime", "openvino"]
Classes = Path | tuple[str, ...] | None
CLASSES = "file of class names in order, one per line; a federation shares it"
Seed = Annotated[int, Field(ge=0, le=SEED)]
BACKBONES = ("resnet18", "resnet50", "vit_b_16", "efficientnet_lite0", "timm:NAME",
             "open_clip:NAME", "hf:OWNER/NAME")  # fmt: skip
AUTO, TORCH = "auto", "torch"  # engines; the others are `extraction.engines.ENGINES`
GRAPH_ENGINES = ("onnxruntime", "openvino")


@dataclass(frozen=True, kw_only=True)
class NumberFormat(Options):
    """How feature values are stored."""

    _dtype = "type of the stored features; sums of int16 features are exact"
    dtype: Literal["int16", "float32"] = Field(default="int16", description=_dtype)
    fraction_bits: int = Field(default=9, ge=0, le=15, description="fraction bits of int16; 9: ±64")

    @property
    def bits(self) -> int | None:
        """Fraction bits; None for float32."""
        return self.fraction_bits if self.dtype == "int16" else None

    def check(self) -> None:
        super().check()
        self.only_where("fraction_bits", "dtype", "int16")


@dataclass(frozen=True, kw_only=True)
class RoundedFormat(NumberFormat):
    """How rows from outside are stored."""

    REFUSES: ClassVar = frozenset({"allow_constant"})

    _constant = "take features that vary and of which rounding leaves a single value"
    allow_constant: bool = Field(default=False, description=_constant)


@dataclass(frozen=True)
class Convert(Threads, RoundedFormat, Output):
    """Write a feature file in another number format; fewer bits make smaller statistics."""

    STAGE: ClassVar = "stages.rows:convert"
    features: Annotated[File, Reads("features")] = Field(description="a feature file")
    out: Annotated[File, Writes("features")] = Field(description="feature file")


@dataclass(frozen=True)
class Split(Output):
    """Cut a feature file into NAME-train.h5 and NAME-test.h5, by rows or by groups of rows.

    Only row ids, labels and groups are used, so files of other backbones are cut alike.
    """

    STAGE: ClassVar = "stages.rows:split"
    features: Annotated[File, Reads("features")] = Field(description="a feature file NAME.h5")
    _out = "folder for the results (default: that of the file)"
    out: FileOut = Field(default=None, description=_out)
    _: KW_ONLY
    test: float = Field(default=0.2, gt=0, lt=1, description="share of each class for testing")
    group: Column = Field(default=None, description="TABLE:COLUMN: rows of one value stay together")
    seed: Seed = Field(default=0, description="seed of the draw")


@dataclass(frozen=True)
class Merge(Output):
    """Put the shards of one extraction together; the file equals one made without shards."""

    STAGE: ClassVar = "stages.rows:merge"
    shards: Annotated[Files, Reads("features")] = Field(description="files, folders, or -")
    out: Annotated[File, Writes("features")] = Field(description="feature file")


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(Options):
    """What is read of embeddings or a table that another program made.

    A file's recipe has it as the names of the features in their space.
    """

    SELECTS: ClassVar = frozenset({"x", "row_ids", "feature_columns", "categories"})

    x: str | None = Field(default=None, description="array or column of features (default: x)")
    _row_ids = f"array or column of row ids (default: {', '.join(ROW_IDS)}, else row/N)"
    row_ids: str | None = Field(default=None, description=_row_ids)
    _features = "COLUMN,COLUMN of a table that are features (default: those of numbers)"
    feature_columns: tuple[str, ...] = Field(default=(), description=_features)
    _categories = "COLUMN,COLUMN of texts, or COLUMN=VALUE,VALUE: a feature of 0 and 1 a value"
    categories: tuple[str, ...] = Field(default=(), description=_categories)

    def check(self) -> None:
        super().check()
        for name in ("feature_columns", "categories"):
            self.excludes("x", name)


@dataclass(frozen=True, kw_only=True)
class NamedRows(ColumnOptions):
    """What is read of embeddings or a table with labels."""

    SELECTS: ClassVar = frozenset({"y"})

    y: str | None = Field(default=None, description="array or column of labels (default: y, label)")


@dataclass(frozen=True, kw_only=True)
class TableOptions(NamedRows, NumberFormat):
    """How a table or an archive is read where a feature file is expected; `import` has more."""

    SELECTS: ClassVar = frozenset({"dtype", "fraction_bits"})


@dataclass(frozen=True, kw_only=True)
class EmbeddingsOptions(NamedRows):
    """What embeddings that another program made are called, and who made them."""

    backbone: str = Field(default="import", description="what made them; only equal ones add up")


@dataclass(frozen=True)
class Import(Threads, EmbeddingsOptions, RoundedFormat, Output):
    """Make a feature file of embeddings that another program made.

    Its network must have been in evaluation mode: batch normalisation in training mode mixes rows,
    and heads then depend on who owns which rows.
    """

    STAGE: ClassVar = "stages.import_embeddings:import_embeddings"
    COMMON: ClassVar = frozenset(
        {"out", "y", "row_ids", "feature_columns", "categories", "classes", "labels"}
        | {"unlabelled", "dtype", "fraction_bits"}
    )

    _embeddings = "a table, .npz or .safetensors with x and y, or .npy with --labels"
    embeddings: Annotated[File, Reads()] = Field(description=_embeddings)
    out: Annotated[File, Writes("features")] = Field(description="feature file")
    _: KW_ONLY
    classes: Classes = Field(default=None, description=CLASSES)
    labels: FileIn = Field(default=None, description="labels of a file without y: .npy, or a text")
    _like = "columns, number format, classes and backbone as in this feature file, where not given"
    like: Annotated[Path | None, Reads("features")] = Field(default=None, description=_like)
    _scale = "scale features as this head file says, which solve made of the sums of scale"
    scale: Annotated[Path | None, Reads("head")] = Field(default=None, description=_scale)
    _missing = "for missing values (NaN): the mean of all sites; indicator: and a column of 0 and 1"
    missing: Literal["refuse", "mean", "indicator"] = Field(default="refuse", description=_missing)
    unlabelled: bool = Field(default=False, description="leave labels out, for predict")

    def check(self) -> None:
        super().check()
        self.needs("missing", "scale")
        for name in ("y", "labels", "classes"):
            self.excludes(name, "unlabelled")


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """Where the weights of a backbone come from."""

    _weights = "default (ImageNet), random, the name of published weights, or a file"
    weights: Annotated[str, Holds()] = Field(
        default="default", description=_weights, examples=["default", "random"]
    )
    seed: Seed = Field(default=0, description="seed of random weights")

    def check(self) -> None:
        super().check()
        self.only_where("seed", "weights", "random")


@dataclass(frozen=True, kw_only=True)
class SeenOptions(WeightsOptions):
    """What a frozen network sees of an image, and what it gives."""

    _node = "NAME[:POOLING][*SCALE] of --list-nodes where features are taken; may be repeated"
    node: Annotated[tuple[str, ...], grammar(parse_nodes)] = Field(
        default=(), description=_node + f" (default: {PENULTIMATE})", examples=[PENULTIMATE, STAGES]
    )
    _preprocess = "paper: the released AFL code's, mean and std 0.5; weights: as these were trained"
    preprocess: Literal["paper", "weights"] = Field(default="weights", description=_preprocess)
    _image_size = "pixels of a side of what the network sees (default: by --preprocess)"
    image_size: int | None = Field(default=None, ge=1, le=4096, description=_image_size)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that ``node`` names; none for what enters the classifier."""
        return () if self.node == (PENULTIMATE,) else parse_nodes(self.node)


@dataclass(frozen=True)
class Backbone(SeenOptions, Output):
    """Write a frozen network as one file, which extract and predict run without PyTorch."""

    STAGE: ClassVar = "stages.extract:backbone"
    name: str = Field(description="resnet18, timm:NAME or another backbone, as extract has it")
    out: Annotated[File, Writes("backbone")] = Field(description="a file NAME.afl")
    _licence = "licence of the weights, as it stands in the file (default: not told)"
    licence: str = Field(default="", kw_only=True, description=_licence)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WeightsOptions):
    """Where the weights of a backbone come from, and how it runs."""

    EXECUTION_ONLY: ClassVar = frozenset({"batch_size", "device", "workers"})

    _batch_size = "images that a thread takes at a time (default: 16, on a GPU 64)"
    batch_size: int | None = Field(default=None, ge=1, le=2**16, description=_batch_size)
    _device, _devices = "where the network runs", ["auto", "cpu", "cuda", "cuda:1"]
    device: str = Field(default="auto", description=_device, examples=_devices)
    _workers = "threads that decode images and run the network (default: one per core)"
    workers: int | None = Field(default=None, ge=1, le=MOST, description=_workers)
    _engine = "what runs the network; auto: onnxruntime on a processor where it agrees with torch"
    engine: Engine = Field(default="auto", description=_engine)

    def check(self) -> None:
        super().check()
        if self.engine in GRAPH_ENGINES and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--engine {self.engine} runs on the processor: leave out --device {self.device}"
            )


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Threads, NetworkOptions, NumberFormat, SeenOptions):
    """What features are of."""

    EXECUTION_ONLY: ClassVar = frozenset({"data_root", "store"})

    _threads = "threads that run the network (default: as many as cores may be used)"
    threads: int | None = Field(default=None, ge=1, le=MOST, description=_threads)
    backbone: Annotated[str, FROZEN_FILE] = Field(
        description="the frozen network, or its file NAME.afl", examples=list(BACKBONES)
    )
    _data, _known = f"images; {PIXELS}", [one.shown for one in DATASETS.data.values()]
    data: Annotated[str, BEHIND_COLON] = Field(
        default="cifar10", description=_data, examples=_known
    )
    classes: Classes = Field(default=None, description=CLASSES)
    split: Half = Field(default="train", description="which images")
    _views = "average the features over views of an image (default: the image alone)"
    views: Annotated[str | None, grammar(parse_views)] = Field(
        default=None, description=_views, examples=["flip", "crops:5", "flip+crops:5"]
    )
    _shard = "I/N: part I (from 0) of N; see merge"
    shard: Annotated[str | None, grammar(parse_part)] = Field(default=None, description=_shard)
    limit: int | None = Field(default=None, ge=1, description="at most so many images of a split")
    _precision = "number format of the network's arithmetic"
    precision: Literal["fp32", "bf16", "fp16"] = Field(default="fp32", description=_precision)
    _data_root = "folder of data sets and downloads (default: $AFLTOOL_DATA, else ./afl-data)"
    data_root: Path | None = Field(default=None, description=_data_root)
    _store = "folder of kept features (default: that of afltool store)"
    store: Path | None = Field(default=None, description=_store)
    skip_corrupt: bool = Field(default=False, description="leave out images that cannot be read")
    unlabelled: bool = Field(default=False, description="without labels, for predict")

    @property
    def part(self) -> Part:
        """The part of the images that ``shard`` means."""
        return Part() if self.shard is None else parse_part(self.shard)

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

    _out = "feature file (default: in the store)"
    out: Annotated[Path | None, Writes("features")] = Field(default=None, description=_out)


@dataclass(frozen=True, kw_only=True)
class ExtractNodes(Extract, Printed):
    """Run images through a frozen backbone and keep the features, so they are made only once."""

    PRINTS: ClassVar = "cli.calls:extract"

    _list_nodes = "print what --node can name, extract nothing"
    list_nodes: bool = Field(default=False, description=_list_nodes)

    def check(self) -> None:
        super().check()
        of_networks = {"backbone", "data", "image_size", "preprocess", "views", "weights", "node"}
        for name in fields_of(Extract).keys() - of_networks:
            self.excludes(name, "list_nodes")
        self.needs("as_json", "list_nodes")


@dataclass(frozen=True, kw_only=True)
class UnitsOptions(Options):
    """How features are summed before they are scaled."""

    _bits = "values are summed as multiples of 2^-N, exactly; with 24 the range is ±8,388,608"
    unit_bits: int = Field(default=24, ge=0, le=40, description=_bits)


@dataclass(frozen=True)
class Scale(Threads, UnitsOptions, EmbeddingsOptions, Output):
    """Sum up a site's features, so that all sites scale alike.

    Values may be missing (NaN). aggregate adds the sums up, solve makes the scaling of their total,
    and import --scale takes it.
    """

    STAGE: ClassVar = "stages.import_embeddings:scale"
    REFUSES: ClassVar = frozenset({"min_rows"})

    rows: Annotated[File, Reads()] = Field(description="a feature file, or what import takes")
    out: Annotated[File, Writes("statistics")] = Field(description="file of the sums")
    _client = "name of this site (default: that of the file)"
    client: str | None = Field(default=None, kw_only=True, description=_client)
    min_rows: int = Field(default=0, ge=0, kw_only=True, description="refuse sums of fewer rows")


def store_folder(options: ExtractOptions) -> Path:
    """The store that these options mean: the given one, or the default."""
    return options.store or default_store()


def default_store() -> Path:
    """The store: $AFLTOOL_STORE, an ./afl-store that is there, else the user's cache folder."""
    if named := os.environ.get("AFLTOOL_STORE"):
        return Path(named)
    here = Path("afl-store")
    return here if here.is_dir() else user_cache_path("afltool")
