"""Options of the stages that make feature files: extract, import, convert."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..values.names import ROW_IDS
from .datasets import SHOWN, absolute_dataset
from .fields import Options, option
from .files import data_in, table_in
from .nodes import PENULTIMATE, STAGES, Node, one_plain_place, parse_nodes
from .shards import WHOLE, OfJob, Part, parse_shard
from .views import Views, parse_views

BACKBONES = ("resnet18", "resnet50", "vit_b_16", "efficientnet_lite0", "timm:NAME")
SEED = 2**63 - 1  # the largest seed that every generator takes


@dataclass(frozen=True, kw_only=True)
class NumberFormat(Options):
    """How feature values are stored."""

    dtype: str = option(
        "int16", "type of the stored features; sums of int16 features are exact",
        choices=("int16", "float32"), common=True,
    )  # fmt: skip
    fraction_bits: int = option(
        9, "fraction bits of int16 features; with 9 the range is ±64", at_least=0, at_most=15,
        only={"dtype": "int16"},
    )  # fmt: skip

    @property
    def bits(self) -> int | None:
        """Fraction bits; None for float32."""
        return self.fraction_bits if self.dtype == "int16" else None


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """Which features a federation has."""

    space: Path | None = option(
        None, "feature file: every site has features of its space, and its classes; others are "
        "refused before they compute",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(NumberFormat):
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
class ImportOptions(NumberFormat):
    """Options of `import`."""

    x: str | None = option(None, "array, or column of lists, that holds the features", unset="x")
    y: str | None = option(
        None, "array or column that holds the labels", unset="y; in .parquet also label",
        only={"unlabelled": False},
    )  # fmt: skip
    labels: Path | None = option(
        None,
        "labels of a file without y: .npy, or text with one per line",
        only={"unlabelled": False},
    )
    row_ids: str | None = option(
        None, "array or column that holds the ids of the rows, by which --by, --group and "
        "--column of tables know them", unset=f"{', '.join(ROW_IDS)}, else row/N",
    )  # fmt: skip
    classes: Path | tuple[str, ...] | None = option(
        None, "file of class names in order, one per line; a federation shares it",
        only={"unlabelled": False},
    )  # fmt: skip
    backbone: str = option(
        "import", "name of what made the embeddings; only equal ones can be added up"
    )
    unlabelled: bool = option(False, "leave labels out, for predict, also where the file has some")


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(Options):
    """Where the weights of a backbone come from."""

    weights: str = option(
        "default", "default (ImageNet), random, the name of published weights, or a file",
        examples=("default", "random"), names_file=True, common=True,
    )  # fmt: skip
    seed: int = option(
        0, "seed of random weights", at_least=0, at_most=SEED, only={"weights": "random"}
    )


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(WeightsOptions):
    """Where the weights of a backbone come from, and how it runs."""

    batch_size: int | None = option(
        None, "images in one step of the network", at_least=1, at_most=2**16,
        unset="16 on a CPU, 256 on a GPU", in_result=False,
    )  # fmt: skip
    device: str = option(
        "auto", "where the network runs", examples=("auto", "cpu", "cuda", "cuda:1"),
        in_result=False, common=True,
    )  # fmt: skip
    workers: int | None = option(
        None, "threads that decode images", at_least=1, at_most=1024, unset="one per core",
        in_result=False,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(NetworkOptions, NumberFormat):
    """Options of `extract`."""

    POSITIONAL: ClassVar = ("backbone", "data", "split")

    backbone: str = option(help="the frozen network", examples=BACKBONES, common=True)
    data: str = option("cifar10", "the images", examples=SHOWN, absolute=absolute_dataset,
        path_in=data_in, common=True)  # fmt: skip
    split: str = option("train", "which images", choices=("train", "test"), in_run=False)
    node: tuple[Node, ...] = option(
        (), "where features are taken, NAME[:POOLING][*SCALE]: a layer or graph node, penultimate "
        "(what enters the classifier), or stages (that and the last stages); may be repeated: "
        "the features lie side by side; --list-nodes shows the names",
        examples=(PENULTIMATE, STAGES), unset=PENULTIMATE, parse=parse_nodes,
    )  # fmt: skip
    preprocess: str = option(
        "paper", "paper: resize, mean 0.5, std 0.5; weights: as the weights were trained",
        choices=("paper", "weights"),
    )  # fmt: skip
    image_size: int | None = option(
        None, "side of the images that the network sees", at_least=1, at_most=4096, unit="pixels",
        unset="224 for paper", common=True,
    )  # fmt: skip
    views: Views | None = option(
        None, "the features are the mean over views of an image: flip (and mirrored), crops:N "
        "(centre and corners of a larger picture, N from 2 to 5), flip+crops:N",
        examples=("flip", "crops:5", "flip+crops:5"), unset="the image alone",
        parse=parse_views,
    )  # fmt: skip
    shard: Part | OfJob | None = option(
        None, "I/N: part I (from 0) of N; slurm: the part of this job; see merge", in_run=False,
        parse=parse_shard,
    )  # fmt: skip
    limit: int | None = option(
        None, "at most this many images of a split, spread over the classes", at_least=1
    )
    classes: Path | tuple[str, ...] | None = option(
        None, "file of class names in order, one per line; a federation shares it",
        only={"unlabelled": False},
    )  # fmt: skip
    precision: str = option(
        "fp32", "number format of the network's arithmetic", choices=("fp32", "bf16", "fp16")
    )
    plain: bool = option(False, "compute the same bits as a plain PyTorch loop; slower")
    data_root: Path | None = option(
        None, "folder where data sets lie or are downloaded to",
        unset="$AFLTOOL_DATA, else ./afl-data", in_result=False,
    )  # fmt: skip
    path_column: str | None = option(
        None, "column of a table whose values are the images' paths", unset="path"
    )
    label_column: str | None = option(
        None, "column of a table whose values are the labels", unset="label"
    )
    checksums: Path | None = option(
        None, "file of md5sum lines, used instead of the published checksums", in_result=False
    )
    store: Path | None = option(
        None, "folder of kept features; extract -o FILE then makes FILE a link to those in it",
        unset="$AFLTOOL_STORE, else ./afl-store", in_result=False,
    )  # fmt: skip
    skip_corrupt: bool = option(False, "leave out images that cannot be read, and count them")
    unlabelled: bool = option(
        False, "without labels, for predict: folders of images at any depth, tables without label",
        in_run=False,
    )  # fmt: skip

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that ``node`` names; none for what enters the classifier."""
        return () if self.node == (Node(PENULTIMATE),) else self.node

    @property
    def part(self) -> Part:
        """The part of the images that ``shard`` means now."""
        return WHOLE if self.shard is None else self.shard.now()

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
