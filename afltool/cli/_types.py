"""Options that several commands share: one name, one help text for one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path, typer.Option("--out", "-o", help="Where the result goes.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a path or a table.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice made here.")]
Clients = Annotated[int | None, typer.Option("--clients", help="Number of clients K.")]
Scheme = Annotated[
    str,
    typer.Option(
        "--scheme",
        help="iid, dirichlet, shards, by-attribute, file, dirichlet-pfl, pathological-pfl.",
    ),
]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Dirichlet α; small is uneven.")]
Shards = Annotated[
    int | None,
    typer.Option("--shards-per-client", help="Shards (or classes, pathological-pfl) a client."),
]
MinSize = Annotated[
    int | None, typer.Option("--min-size", help="Draw again until every client has so many rows.")
]
HeldShare = Annotated[
    float, typer.Option("--held-out", help="Share of clients kept for validation.")
]
LabelNoise = Annotated[
    float, typer.Option("--label-noise", help="Share of rows whose label is flipped, uniformly.")
]
DType = Annotated[str, typer.Option("--dtype", help="int16 (exact sums) or float32.")]
Bits = Annotated[
    int, typer.Option("--fraction-bits", help="Fraction bits of int16 features; 9: range ±64.")
]
HeadSpec = Annotated[
    str, typer.Option("--head", help="A head file, or a head's name with its options.")
]
Threads = Annotated[
    int, typer.Option("--threads", help="BLAS threads of the solve; equal heads need equal counts.")
]


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show(path: Path, as_json: bool) -> None:
    """The result of a stage that made a file: its path, or what is in it as JSON."""
    if not as_json:
        typer.echo(str(path))
        return
    from ..stages.inspect import info

    if path.is_dir():
        print_json([info(p) for p in sorted(path.glob("*.h5"))])
    else:
        print_json(info(path))
