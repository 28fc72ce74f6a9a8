"""Commands that make feature files, cut them and deal their rows to clients."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import made
from ..options.csv_files import CsvOptions, check_formulas, is_csv
from ..options.features import (
    ConvertOptions,
    ExtractOptions,
    FreezeOptions,
    ImportOptions,
    SplitOptions,
)
from ..options.files import WRITES
from ..options.partition import PartitionOptions
from ..options.statistics import MethodOptions, ScaleOptions
from ..options.used_with import ABSENT, GIVEN, OnlyWith
from ._options import add, parameters, used_with
from ._types import Json, Out, Overwrite, passing, print_json, show, show_all


def add_to(app: typer.Typer) -> None:
    add(app, "extract", extract, options=_extracting)
    passing(
        app,
        "backbone",
        "backbone:backbone",
        ("name", str, "resnet18, timm:NAME or another backbone, as extract has it"),
        "Write a frozen network as one file, which extract and predict run without PyTorch.",
        FreezeOptions,
    )
    passing(
        app,
        "import",
        "imports:import_embeddings",
        ("embeddings", Path, ".npz, .parquet or .safetensors with x and y, or .npy with --labels"),
        "Make a feature file of embeddings that another program made.",
        ImportOptions,
    )
    add(app, "scale", scale, options=_summing, how=_solving)
    passing(
        app,
        "convert",
        "convert:convert",
        ("features", Path, "a feature file"),
        "Write a feature file in another number format; fewer bits make smaller statistics.",
        ConvertOptions,
    )
    add(app, "split", split)
    passing(
        app,
        "merge",
        "merge:merge",
        ("shards", list[Path], "files, folders, globs, or - for stdin"),
        "Put the shards of one extraction together; the file equals one made without shards.",
    )
    add(app, "partition", partition, options=_dealing)


def _extracting() -> list[Parameter]:
    return used_with(parameters(ExtractOptions), {"list_nodes": ABSENT}, but=_OF_NETWORKS)


def _dealing() -> list[Parameter]:
    return used_with(parameters(PartitionOptions), {"out": GIVEN})


def _summing() -> list[Parameter]:
    return used_with(parameters(ScaleOptions), {"from": ABSENT})


def _solving() -> list[Parameter]:
    return used_with(parameters(MethodOptions), {"from": GIVEN})


#: Options of `extract` on which the nodes of its network depend, and what it has to be told.
_OF_NETWORKS = ("backbone", "data", "image_size", "preprocess", "views", "weights", "node")


def extract(
    options: ExtractOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="feature file; without it, the store"),
        OnlyWith({"list_nodes": ABSENT}),
    ] = None,
    list_nodes: Annotated[
        bool, typer.Option("--list-nodes", help="print what --node can name, and extract nothing")
    ] = False,
    overwrite: Annotated[Overwrite, OnlyWith({"list_nodes": ABSENT})] = False,
    as_json: Json = False,
) -> None:
    """Run images through a frozen backbone and keep the features, so they are made only once."""
    from ..stages.extract import extract as stage

    if list_nodes:
        _show_nodes(options, as_json)
    else:
        show(stage(options, out, overwrite=overwrite), as_json)


def _show_nodes(options: ExtractOptions, as_json: bool) -> None:
    from ..show.tables import print_nodes
    from ..sources.extraction.request import Asked

    rows = Asked.of(options).nodes()
    if as_json:
        print_json(rows)
    else:
        print_nodes(rows)


def scale(
    out: Out,
    options: dict[str, Any],
    how: dict[str, Any],
    rows: Annotated[
        Path | None, typer.Argument(help="a feature file, or embeddings as import takes them")
    ] = None,
    total: Annotated[
        Path | None, typer.Option("--from", help="the total of all sites: make the scaling of it")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Sum up a site's features, so that all sites scale alike; with --from write that scaling.

    Values may be missing (NaN). aggregate adds the sums up; import --scale takes the scaling.
    """
    from ..errors import UsageError
    from ..stages.scale import scale as stage
    from ..stages.solve import solve

    if (rows is None) == (total is None):
        raise UsageError("give the rows of a site, or --from TOTAL.h5: one of the two")
    if total is not None:
        chosen = {"method": made(MethodOptions, how).method}
        show(solve(total, out, head_options=chosen, overwrite=overwrite), as_json)
    elif rows is not None:
        show(stage(rows, out, made(ScaleOptions, options), overwrite=overwrite), as_json)


def split(
    features: Annotated[Path, typer.Argument(help="a feature file NAME.h5")],
    options: SplitOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="folder for the results; default: that of the file"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Cut a feature file into NAME-train.h5 and NAME-test.h5, by rows or by groups of rows.

    Only row ids, labels and groups are used, so files of other backbones are cut alike.
    """
    from ..stages.split import split as stage

    show_all(stage(features, out, options, overwrite=overwrite), as_json)


def partition(
    file: Annotated[Path, typer.Argument(help="features to deal; or a partition to look at")],
    options: dict[str, Any],
    csv: CsvOptions,
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
    from ..errors import UsageError
    from ..files.hdf5 import read_header
    from ..show.tables import print_facts
    from ..stages import partition as stage

    check_formulas(csv.formulas, export is not None and is_csv(export))
    if out is None:
        if read_header(file)["kind"] != "partition":
            raise UsageError("-o FILE is needed: where the partition goes")
        path = file
        describe = describe or export is None
        if export is not None:
            stage.export(path, export, overwrite=overwrite, formulas=csv.formulas)
    elif export is not None:
        path = stage.partition_and_export(
            file,
            out,
            made(PartitionOptions, options),
            table=export,
            overwrite=overwrite,
            formulas=csv.formulas,
        )
    else:
        path = stage.partition(file, out, made(PartitionOptions, options), overwrite=overwrite)
    if not describe:
        show(path, as_json)
    elif as_json:
        print_json(stage.describe(path))
    else:
        print_facts(stage.describe(path))
