"""Commands that make feature files, cut them and deal their rows to clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..options import ABSENT, GIVEN, Only, OnlyWith, Options, made
from ..options.features import (
    ConvertOptions,
    ExtractOptions,
    FreezeOptions,
    ImportOptions,
    ScaleOptions,
    SplitOptions,
)
from ..options.partition import PartitionOptions
from ..options.shared import WRITES
from ._options import Json, Overwrite, add, parameters, passing, print_json, show, used_with

#: Options of `extract` on which the nodes of its network depend, and what it has to be told.
_OF_NETWORKS = ("backbone", "data", "image_size", "preprocess", "views", "weights", "node")


def add_to(app: typer.Typer) -> None:
    add(
        app,
        "extract",
        extract,
        options=_of(ExtractOptions, {"list_nodes": ABSENT}, but=_OF_NETWORKS),
    )
    passing(
        app,
        "backbone",
        {"name": (str, "resnet18, timm:NAME or another backbone, as extract has it")},
        "Write a frozen network as one file, which extract and predict run without PyTorch.",
        FreezeOptions,
    )
    passing(
        app,
        "import",
        {"embeddings": ".npz, .parquet or .safetensors with x and y, or .npy with --labels"},
        "Make a feature file of embeddings that another program made. Its network must have been "
        "in evaluation mode: batch normalisation in training mode mixes rows, and heads then "
        "depend on who owns which rows.",
        ImportOptions,
        stage="imports:import_embeddings",
    )
    passing(
        app,
        "scale",
        {"rows": "a feature file, or embeddings as import takes them"},
        "Sum up a site's features, so that all sites scale alike.\n\n"
        "Values may be missing (NaN). aggregate adds the sums up, solve makes the scaling of their "
        "total, and import --scale takes it.",
        ScaleOptions,
    )
    passing(
        app,
        "convert",
        {"features": "a feature file"},
        "Write a feature file in another number format; fewer bits make smaller statistics.",
        ConvertOptions,
    )
    _out = "folder for the results; default: that of the file"
    passing(
        app,
        "split",
        {"features": "a feature file NAME.h5"},
        "Cut a feature file into NAME-train.h5 and NAME-test.h5, by rows or by groups of rows.\n\n"
        "Only row ids, labels and groups are used, so files of other backbones are cut alike.",
        SplitOptions,
        out=Annotated[Path | None, typer.Option("--out", "-o", help=_out)],
    )
    passing(
        app,
        "merge",
        {"shards": (list[Path], "files, folders, globs, or - for stdin")},
        "Put the shards of one extraction together; the file equals one made without shards.",
    )
    add(app, "partition", partition, options=_of(PartitionOptions, {"out": GIVEN}))


def _of(cls: type[Options], only: Only, but: tuple[str, ...] = ()) -> Callable[[], Any]:
    """The options of a class, used only with others of the command, once they are needed."""
    return lambda: used_with(parameters(cls), only, but)


def extract(
    options: ExtractOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="feature file; without it, the store",
        ),
        OnlyWith({"list_nodes": ABSENT}),
    ] = None,
    list_nodes: Annotated[
        bool, typer.Option("--list-nodes", help="print what --node can name, and extract nothing")
    ] = False,
    overwrite: Annotated[Overwrite, OnlyWith({"list_nodes": ABSENT})] = False,
    as_json: Json = False,
) -> None:
    """Run images through a frozen backbone and keep the features, so they are made only once."""
    if not list_nodes:
        from ..stages.extract import extract as stage

        show(stage(options, out, overwrite=overwrite), as_json)
        return
    from ..show.tables import print_nodes
    from ..sources.extraction.request import Asked

    rows = Asked.of(options).nodes()
    print_json(rows) if as_json else print_nodes(rows)


def partition(
    file: Annotated[Path, typer.Argument(help="features to deal; or a partition to look at")],
    options: dict[str, Any],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="where the result goes")] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="print the table of the partition")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="also write row,client as CSV, parquet, JSON"),
        WRITES,
    ] = None,
    overwrite: Annotated[Overwrite, OnlyWith({"out|export": GIVEN})] = False,
    as_json: Json = False,
) -> None:
    """Deal the rows of a feature file to clients; each row gets one client.

    Only row ids and labels are used, so every machine makes the same partition. Give a partition
    file instead of features to --describe or --export it.
    """
    from ..files.hdf5 import read_header
    from ..show.tables import print_facts
    from ..stages import partition as stage

    if out is None:
        if read_header(file)["kind"] != "partition":
            raise UsageError("-o FILE is needed: where the partition goes")
        path, describe = file, describe or export is None
        if export is not None:
            stage.export(path, export, overwrite=overwrite)
    else:
        o, how = made(PartitionOptions, options), {"overwrite": overwrite}
        if export is None:
            path = stage.partition(file, out, o, **how)
        else:
            path = stage.partition_and_export(file, out, o, table=export, **how)
    if not describe:
        show(path, as_json)
        return
    facts = stage.describe(path)
    print_json(facts) if as_json else print_facts(facts)
