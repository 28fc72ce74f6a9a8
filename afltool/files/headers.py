"""The fields of each kind's header (docs/format.md), as types that msgspec checks JSON against.

Objects may have more fields; UNSET stands for one that may be absent.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert

from . import schema

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Size = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Bits = Annotated[int, Meta(ge=0, le=15)]
NumberFormat = Literal["int16", "float32"]
Record = dict[str, Any]
NAMES = ("names", "classes", "columns", "cells")  # fields that are lists of different things


class Distinct(Struct):
    """A part of a header whose lists of `NAMES` have nothing twice."""

    def __post_init__(self) -> None:
        for name in NAMES:
            found = getattr(self, name, None)
            if isinstance(found, list) and len(set(found)) < len(found):
                raise ValueError(f"{name} is not a list of different entries")


class Recipe(Struct):
    stage: str
    options: Record
    inputs: Record


class Header(Distinct, kw_only=True):
    """What every header has. A class for each kind of file says the rest of it."""

    MEMBERS: ClassVar[tuple[str, ...]]  # what lies beside the header
    READ_BY: ClassVar[tuple[str, str]]  # what reads and checks such a file as a whole
    REPORTS: ClassVar[bool] = False  # the header has figures, once NaN for null

    digest: str
    recipe: Recipe
    provenance: Record


class AddableSpace(Distinct, kw_only=True):
    """That of statistics and heads, which may be made of other rows than feature files."""

    dim: AtLeastOne | UnsetType = UNSET
    dtype: NumberFormat | UnsetType = UNSET
    fraction_bits: Bits | UnsetType | None = UNSET
    columns: list[str] | UnsetType = UNSET


class Space(AddableSpace, kw_only=True):
    dim: AtLeastOne
    dtype: NumberFormat
    fraction_bits: Bits | None


class FeaturesHeader(Header, kw_only=True):
    MEMBERS = (schema.FEATURES, schema.LABELS, schema.ROW_IDS)
    READ_BY = ("features", "verify_features")

    space: Space
    classes: list[str]
    source: Record


class PartitionHeader(Header, kw_only=True):
    MEMBERS = (schema.ROW_IDS, schema.LABELS, schema.EFFECTIVE_LABELS, schema.CLIENT)
    READ_BY = ("partitions", "load_partition")

    names: list[str]
    held_out: list[Whole]
    classes: list[str]
    scheme: Record
    rows_digest: str


class BoundHead(Struct, kw_only=True):
    name: str | UnsetType = UNSET
    options: Record | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET


class Noise(Struct):
    form: str
    sigma: Record


class Context(Distinct, kw_only=True):
    space: AddableSpace
    classes: list[str]
    head: BoundHead
    noise: Noise | UnsetType = UNSET


class Clients(Struct):
    names: list[str]
    rows: list[Whole | None]  # null: not told
    gamma: list[Size]
    partition: list[Whole]
    source: list[Whole]
    held_out: list[Whole]
    partitions: list[list[str]]
    sources: list[str]
    dealt_to: list[Whole]


class ArrayEntry(Distinct, forbid_unknown_fields=True):
    """What a file says of an array, see `values.statistics.ArraySpec`."""

    kind: Literal["count", "int", "real"]
    per_row: Size | UnsetType = UNSET
    square: bool | UnsetType = UNSET
    rows_of: str | UnsetType = UNSET
    by_class: bool | UnsetType = UNSET
    cells: list[Whole] | UnsetType = UNSET


class StatisticsHeader(Header, kw_only=True):
    MEMBERS = (schema.ARRAYS, schema.SPARSE, schema.CLASS_COUNTS)
    READ_BY = ("statistics", "load_statistics")

    phase: str
    context: Context
    clients: Clients
    arrays: dict[str, ArrayEntry] | UnsetType = UNSET  # versions up to 0.3 do not say it


class HeadHeader(Header, kw_only=True):
    MEMBERS = (schema.ARRAYS, schema.SPARSE)
    READ_BY = ("heads", "load_head")
    REPORTS = True

    name: str
    options: Record
    phase: str | None
    dim: AtLeastOne | None
    space: AddableSpace | None
    classes: list[str] | None
    report: Record


class Slice(Struct):
    name: str
    node: str
    dim: AtLeastOne
    scale: Size


class Backbone(Struct):
    name: str
    weights: str
    weights_digest: str
    node: str
    nodes: list[str]
    slices: list[Slice]
    dim: AtLeastOne
    preprocessing: Record
    licence: str


class BackboneHeader(Header, kw_only=True):
    MEMBERS = (schema.GRAPH, schema.PROBE)
    READ_BY = ("backbones", "load_frozen")

    backbone: Backbone


KINDS: dict[str, type[Header]] = {
    "features": FeaturesHeader,
    "partition": PartitionHeader,
    "statistics": StatisticsHeader,
    "head": HeadHeader,
    "backbone": BackboneHeader,
}


def misfit(value: Any, kind: Any) -> str:
    """The first field of a JSON value that is not of a type, in words; '' if all fit.

    >>> misfit([1, "2"], list[int])
    '[1]: expected `int`, got `str`'
    """
    try:
        convert(value, kind)
    except ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        place = place.removesuffix("`").removeprefix(".").replace("[...]", "").strip()
        return f"{place or 'all'}: {what[:1].lower()}{what[1:]}"
    return ""
