"""Options of the stages that make feature files: extract, import, convert, split, and of scale."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import UsageError
from ..values.names import ROW_IDS
from ..values.text import PIXELS
from . import GIVEN, Options, option
from .datasets import SHOWN, absolute_dataset
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
from .shared import SEED, ThreadOptions, data_in, frozen_in, table_in, threads_option

BACKBONES = ("resnet18", "resnet50", "vit_b_16", "efficientnet_lite0", "timm:NAME")
MISSING = ("refuse", "mean", "indicator")
AUTO, TORCH = "auto", "torch"  # engines; the others are `sources.extraction.engines.ENGINES`
GRAPH_ENGINES = ("onnxruntime", "openvino")


def absolute_backbone(text: str) -> str:
    """The same backbone from any folder."""
    return str(Path(text).absolute()) if frozen_in(text) else text


@dataclass(frozen=True, kw_only=True)
class NumberFormat(Options):
    """How feature values are stored."""

    _dtype = "type of the stored features; sums of int16 features are exact"
    dtype: str = option("int16", _dtype, choices=("int16", "float32"), common=True)
    _fraction_bits = "fraction bits of int16 features; with 9 the range is ±64"
    fraction_bits: int = option(9, _fraction_bits, at_least=0, at_most=15, only={"dtype": "int16"})

    @property
    def bits(self) -> int | None:
        """Fraction bits; None for float32."""
        return self.fraction_bits if self.dtype == "int16" else None


@dataclass(frozen=True, kw_only=True)
class RoundedFormat(NumberFormat):
    """How rows from outside are stored."""

    _constant = "take features that vary and of which rounding leaves a single value"
    allow_constant: bool = option(False, _constant, in_result=False)


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ThreadOptions, RoundedFormat):
    """Options of `convert`."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """Options of `split`."""

    test: float = option(0.2, "share of the rows of each class for testing", above=0, below=1)
    group: str | None = option(
        None,
        "TABLE:COLUMN: rows of one value, such as one patient, stay together",
        path_in=table_in,
    )
    seed: int = option(0, "seed of the draw", at_least=0, at_most=SEED)


@dataclass(frozen=True, kw_only=True)
class EmbeddingsOptions(Options):
    """What embeddings that another program made are called, and who made them."""

    x: str | None = option(None, "array, or column of lists, that holds the features", unset="x")
    _y = "array or column that holds the labels"
    y: str | None = option(None, _y, unset="y; in .parquet also label")
    _row_ids = (
        "array or column that holds the ids of the rows, by which --by, --group and "
        "--column of tables know them"
    )
    row_ids: str | None = option(None, _row_ids, unset=f"{', '.join(ROW_IDS)}, else row/N")
    backbone: str = option(
        "import", "name of what made the embeddings; only equal ones can be added up"
    )


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ThreadOptions, EmbeddingsOptions, RoundedFormat):
    """Options of `import`."""

    ONLY: ClassVar = {"y": {"unlabelled": False}}

    labels: Path | None = option(
        None,
        "labels of a file without y: .npy, or text with one per line",
        only={"unlabelled": False},
    )
    _classes = "file of class names in order, one per line; a federation shares it"
    classes: Path | tuple[str, ...] | None = option(None, _classes, only={"unlabelled": False})
    _scale = "scale features as this file of afltool scale --from says"
    scale: Path | None = option(None, _scale)
    _missing = (
        "values that are missing (NaN): the mean of all sites, which the scaling has; indicator: "
        "and a column of 0 and 1 for each feature that lacks some"
    )
    missing: str = option("refuse", _missing, choices=MISSING, only={"scale": GIVEN})
    unlabelled: bool = option(False, "leave labels out, for predict, also where the file has some")


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """Where the weights of a backbone come from."""

    _weights = "default (ImageNet), random, the name of published weights, or a file"
    weights: str = option(
        "default", _weights, examples=("default", "random"), names_file=True, common=True
    )
    seed: int = option(
        0, "seed of random weights", at_least=0, at_most=SEED, only={"weights": "random"}
    )


@dataclass(frozen=True, kw_only=True)
class SeenOptions(WeightsOptions):
    """What a frozen network sees of an image, and what it gives."""

    _node = (
        "where features are taken, NAME[:POOLING][*SCALE]: a layer or graph node, penultimate "
        "(what enters the classifier), or stages (that and the last stages); may be repeated: "
        "the features lie side by side; extract --list-nodes shows the names"
    )
    node: tuple[Node, ...] = option(
        (), _node, examples=(PENULTIMATE, STAGES), unset=PENULTIMATE, parse=parse_nodes
    )
    _preprocess = "paper: resize, mean 0.5, std 0.5; weights: as the weights were trained"
    preprocess: str = option("paper", _preprocess, choices=("paper", "weights"))
    _image_size = "side of the images that the network sees"
    image_size: int | None = option(
        None,
        _image_size,
        at_least=1,
        at_most=4096,
        unit="pixels",
        unset="224 for paper",
        common=True,
    )

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that ``node`` names; none for what enters the classifier."""
        return () if self.node == (Node(PENULTIMATE),) else self.node


@dataclass(frozen=True, kw_only=True)
class FreezeOptions(SeenOptions):
    """Options of `backbone`."""

    licence: str = option("", "licence of the weights, as it stands in the file", unset="not told")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WeightsOptions):
    """Where the weights of a backbone come from, and how it runs."""

    _batch_size = "images that are decoded together, and of torch one step of the network"
    batch_size: int | None = option(
        None,
        _batch_size,
        at_least=1,
        at_most=2**16,
        unset="16 on a CPU, of other engines for each thread; 256 on a GPU",
        in_result=False,
    )
    _device = "where the network runs"
    device: str = option(
        "auto", _device, examples=("auto", "cpu", "cuda", "cuda:1"), in_result=False, common=True
    )
    _workers = "threads that decode images"
    workers: int | None = option(
        None, _workers, at_least=1, at_most=1024, unset="one per core", in_result=False
    )
    _engine = (
        "what runs the network: auto takes onnxruntime on a processor, where it is installed and "
        "agrees with torch; the features of openvino are a space of their own"
    )
    engine: str = option(AUTO, _engine, choices=(AUTO, TORCH, *GRAPH_ENGINES))

    def check(self) -> None:
        if self.engine in GRAPH_ENGINES and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--engine {self.engine} runs on the processor: leave out --device {self.device}"
            )


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(ThreadOptions, NetworkOptions, NumberFormat, SeenOptions):
    """Options of `extract`."""

    POSITIONAL: ClassVar = ("backbone", "data", "split")

    _threads = "threads that run the network; only last bits with torch may depend on their number"
    threads: int | None = threads_option(text=_threads)

    backbone: str = option(
        help="the frozen network, or its file NAME.afl",
        examples=BACKBONES,
        absolute=absolute_backbone,
        path_in=frozen_in,
        common=True,
    )
    _data = f"images; {PIXELS}"
    data: str = option(
        "cifar10", _data, examples=SHOWN, absolute=absolute_dataset, path_in=data_in, common=True
    )
    split: str = option(
        "train", "which images", choices=("train", "test"), in_run=False, always=True
    )
    _views = (
        "the features are the mean over views of an image: flip (and mirrored), crops:N "
        "(centre and corners of a larger picture, N from 2 to 5), flip+crops:N"
    )
    views: Views | None = option(
        None,
        _views,
        examples=("flip", "crops:5", "flip+crops:5"),
        unset="the image alone",
        parse=parse_views,
    )
    _shard = "I/N: part I (from 0) of N; see merge"
    shard: Part | None = option(None, _shard, in_run=False, parse=parse_shard)
    limit: int | None = option(
        None, "at most this many images of a split, spread over the classes", at_least=1
    )
    _classes = "file of class names in order, one per line; a federation shares it"
    classes: Path | tuple[str, ...] | None = option(None, _classes, only={"unlabelled": False})
    precision: str = option(
        "fp32", "number format of the network's arithmetic", choices=("fp32", "bf16", "fp16")
    )
    _data_root = "folder where data sets lie or are downloaded to"
    data_root: Path | None = option(
        None, _data_root, unset="$AFLTOOL_DATA, else ./afl-data", in_result=False
    )
    path_column: str | None = option(
        None, "column of the images: of a table their paths, of parquet their bytes", unset="path"
    )
    label_column: str | None = option(
        None, "column of the labels; of WebDataset their key in JSON", unset="label"
    )
    _store = "folder of kept features; extract -o FILE then makes FILE a link to those in it"
    store: Path | None = option(
        None, _store, unset="$AFLTOOL_STORE, else ./afl-store", in_result=False
    )
    _skip_corrupt = "leave out images that cannot be read, and count them; what is done is kept"
    skip_corrupt: bool = option(False, _skip_corrupt)
    _unlabelled = (
        "without labels, for predict: folders of images at any depth, tables without label"
    )
    unlabelled: bool = option(False, _unlabelled, in_run=False)

    @property
    def part(self) -> Part:
        """The part of the images that ``shard`` means."""
        return self.shard or WHOLE

    @property
    def steady(self) -> bool:
        """Whether features have one digest for any batch size and number of threads.

        Those of one view and a single place are as ever: steps have the batch's size.
        """
        return self.views is not None or not one_plain_place(self.nodes)

    @property
    def seen(self) -> Views:
        """The views that ``views`` names; without it, the whole picture."""
        return self.views or Views()


@dataclass(frozen=True, kw_only=True)
class UnitsOptions(Options):
    """How features are summed before they are scaled; all sites do it alike."""

    _bits = "values are summed as multiples of 2^-N, exactly; with 24 the range is ±8,388,608"
    unit_bits: int = option(24, _bits, at_least=0, at_most=40)


@dataclass(frozen=True, kw_only=True)
class ScaleOptions(ThreadOptions, UnitsOptions, EmbeddingsOptions):
    """Options of `scale`: whose rows are summed."""

    client: str | None = option(None, "name of this site", unset="that of the file")
    min_rows: int = option(0, "refuse sums of fewer rows", at_least=0, in_result=False)


def store_folder(options: ExtractOptions) -> Path:
    """The store that these options mean: the given one, $AFLTOOL_STORE, or ./afl-store."""
    return options.store or default_store()


def default_store() -> Path:
    return Path(os.environ.get("AFLTOOL_STORE") or "afl-store")
