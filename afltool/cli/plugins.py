"""The command `check-plugin`: whether a plug-in holds what commands, files and sums rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..doors import FAILS, STAGES, doors, located, need_torch
from ..errors import IncompleteError, UsageError
from ._console import say
from ._options import Json, add, print_json
from .app import COMMANDS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Check = tuple[str, bool]
#: Where the plug-ins of a group are listed, as text: the main part never imports the rivals.
REGISTRIES = {
    "heads": "heads:HEADS",
    "rivals": "rivals:METHODS",
    "datasets": "options.datasets:DATASETS",
    "backbones": "sources.backbones.families:FAMILIES",
    "schemes": "options.partition:SCHEMES",
    "embeddings": "sources.embeddings:READERS",
    "targets": "exporting:FORMATS",
}
#: Values of options that a scheme may need.
DEALT: dict[str, Any] = {"clients": 4, "alpha": 1.0, "shards_per_client": 2}
SIDE = 64  # of the pictures that a backbone is tried on


def add_to(app: typer.Typer) -> None:
    add(app, "check-plugin", check_plugin)


def check_plugin(
    name: Annotated[str, typer.Argument(help="the plug-in's name, such as that of its head")],
    file: Annotated[
        Path | None,
        typer.Option(help="something for it to read: of a data set or of a format of embeddings"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a plug-in: that it loads, and that what it makes holds what commands rely on."""
    groups = [*(f"afltool.{one}" for one in REGISTRIES), STAGES, COMMANDS]
    every = {group: doors(group) for group in groups}
    matches = [(group, one[name]) for group, one in every.items() if name in one]
    if not matches:
        names = sorted({one for group in groups for one in every[group]})
        raise UsageError(f"no installed package has a plug-in {name!r}; there are {names}")
    for group, _ in matches:
        _check_needs(group.rpartition(".")[2], name, file)
    checks = [one for group, door in matches for one in _checked(group, door, file, as_json)]
    if failed := sum(not holds for _, holds in checks):
        raise IncompleteError(f"{failed} checks of the plug-in {name} failed")


def _check_needs(kind: str, name: str, file: Path | None) -> None:
    """Refuse to try what cannot be tried here, or without a file."""
    if kind in ("rivals", "backbones"):
        need_torch(f"a check of {kind}")
    reads = kind == "embeddings" or (kind == "datasets" and _takes(name))
    if reads and file is None:
        raise UsageError(f"name something that {name} can read, with --file")


def _takes(name: str) -> str:
    """What stands behind the colon of a data set; empty for nothing, and for one left out."""
    from ..options.datasets import DATASETS

    return DATASETS[name].takes if name in DATASETS else ""


def _checked(group: str, door: EntryPoint, file: Path | None, as_json: bool) -> list[Check]:
    package = door.dist and f"{door.dist.name} {door.dist.version}"
    checks = []
    for law, holds in _safe(_checks(group, door, file)):
        checks.append((law, holds))
        if not as_json:
            say(f"{'ok   ' if holds else 'FAILS'}  {law}")
    if as_json:
        each = [{"check": law, "holds": holds} for law, holds in checks]
        print_json({"group": group, "name": door.name, "package": package, "checks": each})
    else:
        say(f"{door.name}: {group} of {package} ({door.value})")
    return checks


def _safe(checks: Iterable[Check]) -> Iterator[Check]:
    """The checks; what one of them raises is a check that fails."""
    try:
        yield from checks
    except FAILS as error:
        yield f"without an error: {type(error).__name__}: {error}", False


def _checks(group: str, door: EntryPoint, file: Path | None) -> Iterator[Check]:
    kind, _ = group.rpartition(".")[2], door.load()
    yield "it can be loaded", True
    if kind in REGISTRIES:
        yield "afltool takes it", door.name in located(f"..{REGISTRIES[kind]}", __package__)
        yield from _OF_GROUP[kind](door.name, file)


def _of_head(name: str, _: Path | None) -> Iterator[Check]:
    from ..plans.config import FIELDS
    from ..stages._laws import laws

    yield from laws(name, set(FIELDS))


def _of_scheme(name: str, _: Path | None) -> Iterator[Check]:
    import numpy as np

    from ..options.partition import SCHEMES, PartitionOptions
    from ..partitions.dealing import assign

    given = {one: DEALT[one] for one in SCHEMES[name][0]}
    o, labels = PartitionOptions(scheme=name, **given), np.arange(60) % 3
    ids, order = (
        np.array([b"%02d" % i for i in range(60)]),
        np.random.default_rng(0).permutation(60),
    )
    one, again, mixed = (
        assign(ids[rows], labels[rows], 3, o) for rows in (slice(None), slice(None), order)
    )
    names = len(one.names)
    yield "every row has a client", bool(((one.client >= 0) & (one.client < names)).all())
    yield "the same rows are dealt alike", bool((one.client == again.client).all())
    yield "the order of the rows does not matter", bool((one.client[order] == mixed.client).all())


def _of_dataset(name: str, file: Path | None) -> Iterator[Check]:
    from ..sources.images import open_dataset

    spec = f"{name}:{file}" if _takes(name) else name
    rows, again = (open_dataset(spec, "train") for _ in range(2))
    yield "its training images are RGB pictures", rows.load(len(rows) - 1).mode == "RGB"
    yield "every row has an id of its own", len({*rows.row_ids.tolist()}) == len(rows)
    yield "the same rows have the same fingerprint", rows.fingerprint == again.fingerprint


def _of_backbone(name: str, _: Path | None) -> Iterator[Check]:
    from ..sources.backbones.families import source_of
    from ..sources.backbones.models import load_backbone

    one, again = (load_backbone(name, weights="random", image_size=SIDE) for _ in range(2))
    yield f"it gives the {one.dim} features of a picture that it says", True  # else it is refused
    yield "a seed gives the same weights", one.weights_digest == again.weights_digest
    source = source_of(name)
    yield "it tells default weights", source.knows("default") and bool(source.published("default"))


def _of_embeddings(name: str, file: Path | None) -> Iterator[Check]:
    from ..sources.embeddings import check_rows, open_embeddings

    assert file is not None
    x = open_embeddings(file)
    check_rows(file, x)
    blocks = [block.shape for block in x.blocks()]
    yield "its blocks have the rows that it says", sum(n for n, _ in blocks) == len(x)
    yield "its blocks have the features that it says", {d for _, d in blocks} == {x.shape[1]}
    yield "there is a label a row, or none", x.labels is None or len(x.labels) == len(x)


def _of_target(name: str, _: Path | None) -> Iterator[Check]:
    from ..exporting import build, format_of, trial
    from ..stages._laws import BITS, solved

    packer, (head, header) = format_of(Path(f"model{name}")), solved("linear")
    model, x = build.of_features(head, header), trial.sample_rows(head, BITS)
    data = packer.pack(model)
    trial.compare(head, BITS, x, packer.run(data, model, x), name)
    yield "a linear head's file gives the head's scores", True
    yield "equal heads give equal bytes", packer.pack(model) == data


def _of_rival(name: str, _: Path | None) -> Iterator[Check]:
    yield from located("..rivals.laws:laws", __package__)(name)


_OF_GROUP: dict[str, Callable[[str, Path | None], Iterator[Check]]] = {
    "heads": _of_head,
    "rivals": _of_rival,
    "datasets": _of_dataset,
    "backbones": _of_backbone,
    "schemes": _of_scheme,
    "embeddings": _of_embeddings,
    "targets": _of_target,
}
