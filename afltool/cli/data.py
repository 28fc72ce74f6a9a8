"""Commands that make features and deal them out: import, partition."""

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
    app.command("import")(command(import_))
    app.command("partition")(command(partition))


Classes = Annotated[
    Path | None,
    typer.Option("--classes", help="Class names in order, one a line; a federation shares it."),
]


def read_classes(path: Path | None) -> list[str] | None:
    """Class names from a text file, one a line."""
    from ..errors import InputError, InvalidDataError

    if path is None:
        return None
    try:
        names = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class list {path}: {error}") from None
    if not names or len(set(names)) < len(names):
        raise InvalidDataError(
            f"{path} must name each class once, one a line; found {len(names)} lines, "
            f"{len(set(names))} different"
        )
    return names


def import_(
    embeddings: Annotated[Path, typer.Argument(help=".npz with x and y, or .npy with --labels.")],
    out: Out,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels of a .npy: .npy, or one a line.")
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
        classes=read_classes(classes),
        dtype=dtype,
        fraction_bits=fraction_bits,
        backbone=backbone,
        overwrite=overwrite,
    )
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
