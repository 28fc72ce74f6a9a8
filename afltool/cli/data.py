"""Commands that make features and deal them out: extract, import, convert, merge, partition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._console import command
from ._types import (
    Alpha,
    Bits,
    Clients,
    DType,
    HeldShare,
    Json,
    LabelNoise,
    MinSize,
    Out,
    Overwrite,
    Scheme,
    Seed,
    Shards,
    print_json,
    show,
)


def add_to(app: typer.Typer) -> None:
    app.command("extract")(command(extract))
    app.command("import")(command(import_))
    app.command("convert")(command(convert))
    app.command("merge")(command(merge))
    app.command("partition")(command(partition))


Classes = Annotated[
    Path | None,
    typer.Option("--classes", help="Class names in order, one a line; a federation shares it."),
]


def _names(classes: Path | None) -> tuple[str, ...] | None:
    from ..datasets import read_classes

    return None if classes is None else read_classes(classes)


def extract(
    backbone: Annotated[
        str,
        typer.Option("--backbone", help="resnet18 …, efficientnet_lite0, timm:NAME."),
    ],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="digits, fashion-mnist, cifar10, cifar100, tiny-imagenet, imagefolder:PATH, "
            "table:FILE.",
        ),
    ] = "cifar10",
    split: Annotated[str, typer.Option("--split", help="train or test.")] = "train",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Feature file; without it, the store.")
    ] = None,
    weights: Annotated[
        str,
        typer.Option("--weights", help="default (ImageNet), random, a weights name, or a file."),
    ] = "default",
    seed: Annotated[int, typer.Option("--seed", help="Seed of random weights.")] = 0,
    node: Annotated[
        str | None,
        typer.Option("--node", help="A layer or graph node instead of the classifier's input."),
    ] = None,
    preprocess: Annotated[
        str,
        typer.Option("--preprocess", help="paper: resize, mean 0.5, std 0.5; weights: their own."),
    ] = "paper",
    image_size: Annotated[
        int | None, typer.Option("--image-size", help="Side of the images (paper: 224).")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            help="I/N: part I (from 0) of N; slurm: of the job. merge puts them together.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="At most so many images, spread over classes.")
    ] = None,
    classes: Classes = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Images a step; chosen for the device.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", help="The backbone's arithmetic: fp32, bf16, fp16.")
    ] = "fp32",
    plain: Annotated[
        bool, typer.Option("--plain", help="The bits of a plain PyTorch loop; slower.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Threads that decode images (one a core).")
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option("--data-root", help="Where data sets lie ($AFLTOOL_DATA, ./afl-data)."),
    ] = None,
    checksums: Annotated[
        Path | None,
        typer.Option("--checksums", help="md5sum lines to trust instead of the published ones."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Folder of cached features ($AFLTOOL_STORE, ./afl-store)."),
    ] = None,
    dtype: DType = "int16",
    fraction_bits: Bits = 9,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Leave out unreadable images, counting them.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Run images through a frozen backbone, once: resumable, cached, checksummed."""
    from ..stages.extract import extract as stage

    path = stage(
        backbone,
        data,
        split,
        out,
        weights=weights,
        seed=seed,
        node=node,
        preprocess=preprocess,
        image_size=image_size,
        classes=_names(classes),
        limit=limit,
        shard=shard,
        dtype=dtype,
        fraction_bits=fraction_bits,
        precision=precision,
        plain=plain,
        batch_size=batch_size,
        device=device,
        workers=workers,
        data_root=data_root,
        checksums=checksums,
        store=store,
        skip_corrupt=skip_corrupt,
        overwrite=overwrite,
    )
    show(path, as_json)


def merge(
    shards: Annotated[list[Path], typer.Argument(help="Files, folders, globs, or - for stdin.")],
    out: Out,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Put the shards of one extraction together: the file that an unsharded run would make."""
    from ..stages.merge import merge as stage

    show(stage(shards, out, overwrite=overwrite), as_json)


def import_(
    embeddings: Annotated[
        Path, typer.Argument(help=".npz, .parquet or .safetensors with x and y; or .npy.")
    ],
    out: Out,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="Labels of a file without y: .npy, or one a line."),
    ] = None,
    classes: Classes = None,
    dtype: DType = "int16",
    fraction_bits: Bits = 9,
    backbone: Annotated[
        str, typer.Option("--backbone", help="What made the embeddings; only equal ones add up.")
    ] = "import",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a feature file from embeddings made by anyone."""
    from ..stages.imports import import_embeddings

    path = import_embeddings(
        embeddings,
        out,
        labels=labels,
        classes=_names(classes),
        dtype=dtype,
        fraction_bits=fraction_bits,
        backbone=backbone,
        overwrite=overwrite,
    )
    show(path, as_json)


def convert(
    features: Annotated[Path, typer.Argument(help="A feature file.")],
    out: Out,
    dtype: DType = "int16",
    fraction_bits: Bits = 9,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a feature file in another number format; fewer bits make smaller statistics."""
    from ..stages.convert import convert as stage

    path = stage(features, out, dtype=dtype, fraction_bits=fraction_bits, overwrite=overwrite)
    show(path, as_json)


def partition(
    file: Annotated[Path, typer.Argument(help="Features to deal out; or a partition to look at.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the result goes.")] = None,
    scheme: Scheme = "dirichlet",
    clients: Clients = None,
    seed: Seed = 0,
    alpha: Alpha = None,
    shards_per_client: Shards = None,
    min_size: MinSize = None,
    held_out: HeldShare = 0.0,
    label_noise: LabelNoise = 0.0,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="CSV, parquet or JSON: column row, and the clients' column."),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="Column of --table whose values are clients.")
    ] = None,
    balance_cap: Annotated[
        bool, typer.Option("--balance-cap", help="Full clients get no more rows (dirichlet).")
    ] = False,
    top_up: Annotated[
        bool, typer.Option("--top-up", help="Fill the smallest clients (dirichlet-pfl).")
    ] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the table of the partition.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option("--export", help="Also write row,client as CSV, parquet, JSON.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Deal rows to clients, by row ids and labels alone: disjoint, complete, the same everywhere.

    With a partition file instead of features: --describe it or --export it.
    """
    from ..errors import UsageError
    from ..report.tables import print_facts
    from ..stages import partition as stage
    from ..store.hdf5 import read_header

    if out is None:
        if read_header(file)["kind"] != "partition":
            raise UsageError("-o FILE is needed: where the partition goes")
        path = file
        describe = describe or export is None
    else:
        path = stage.partition(
            file,
            out,
            scheme=scheme,
            clients=clients,
            seed=seed,
            alpha=alpha,
            shards_per_client=shards_per_client,
            min_size=min_size,
            held_out=held_out,
            label_noise=label_noise,
            table=table,
            column=column,
            balance_cap=balance_cap,
            top_up=top_up,
            overwrite=overwrite,
        )
    if export is not None:
        stage.export(path, export)
    if not describe:
        show(path, as_json)
    elif as_json:
        print_json(stage.describe(path))
    else:
        print_facts(stage.describe(path))
