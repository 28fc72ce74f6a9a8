"""Texts of options with a grammar: parts and clients, nodes of a network, views of a picture.

A node is a layer, a node of the traced graph, or `PENULTIMATE`; `STAGES` stands for several of
them. Views are deterministic, and their features are averaged: flip is the picture and its mirror
image; crops:N are N squares at 8/7 of the side, the center, then the corners.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import frexp

from ..errors import UsageError


@dataclass(frozen=True)
class Part:
    """Part ``number``, from 0, of ``count``."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, n: int) -> slice:
        """The places of this part in a sequence of ``n``."""
        return slice(n * self.number // self.count, n * (self.number + 1) // self.count)


def parse_part(text: str, option: str = "--shard") -> Part:
    """'I/N' with I from 0."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise UsageError(f"{option} is I/N with I from 0 to N−1, such as 0/8; found {text!r}")
    return Part(int(match[1]), int(match[2]))


def parse_numbers(text: str, clients: int) -> list[int]:
    """The numbers of clients, of so many, that '0-2,5' names: ascending, each once."""
    found: set[int] = set()
    for one in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", one)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < clients:
            form = f"0-9 or 3,7-8, numbered 0 to {clients - 1}, or a part I/N"
            raise UsageError(f"--only takes clients such as {form}; found {text!r}")
        found |= {*range(first, last + 1)}
    return sorted(found)


# ---------------------------------------------------------------- nodes

PENULTIMATE = "penultimate"  # what enters the classifier
STAGES = "stages"  # it, and the ends of the network's last stages
POOLINGS = ("mean", "max", "mean+max", "token", "token+mean")
MOST_SHIFT = 15  # a scale moves the point of int16 by so many places at the most


@dataclass(frozen=True)
class Node:
    """A place called ``name``, its ``pooling`` (None: as the shape asks), times ``scale`` = 2^k."""

    name: str
    pooling: str | None = None
    scale: float = 1.0

    @property
    def slice_name(self) -> str:
        """What its features are called, whatever their scale."""
        return self.name if self.pooling is None else f"{self.name}:{self.pooling}"

    def __str__(self) -> str:
        return self.slice_name + ("" if self.scale == 1.0 else f"*{self.scale:g}")


def parse_node(text: str) -> Node:
    """The node that a text such as 'blocks.5:max*1/8' names."""
    place, star, factor = text.partition("*")
    name, colon, pooling = place.partition(":")
    if not name or (colon and pooling not in POOLINGS):
        form = f"NAME, NAME:POOLING or NAME:POOLING*SCALE, with a pooling of {', '.join(POOLINGS)}"
        raise UsageError(f"--node is {form}; found {text!r}")
    if name == PENULTIMATE and colon:
        raise UsageError(f"--node {text}: what enters the classifier is pooled by the network")
    return Node(name, pooling or None, _scale(text, factor) if star else 1.0)


def _scale(text: str, factor: str) -> float:
    """A power of two, as 0.125, 8 or 1/8: the products of int16 features stay exact."""
    try:
        mantissa, exponent = frexp(value := float(Fraction(factor)))
    except (ValueError, ArithmeticError):
        value = mantissa = exponent = 0
    if mantissa != 0.5 or abs(exponent - 1) > MOST_SHIFT:
        range_ = f"a power of two from 2^-{MOST_SHIFT} to 2^{MOST_SHIFT}, such as 1/8"
        raise UsageError(f"--node {text}: a scale is {range_}; found {factor!r}")
    return value


def parse_nodes(texts: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes in the order given; `UsageError` for a text that names none, or a node twice."""
    nodes = tuple(parse_node(text) for text in texts)
    refuse_twice([node.slice_name for node in nodes])
    return nodes


def refuse_twice(names: list[str]) -> None:
    """Refuse a list in which a node stands twice."""
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise UsageError(f"--node {twice[0]} is given twice; each slice of the features is one")


def is_single_plain_node(nodes: tuple[Node, ...]) -> bool:
    """Whether the features are one bare node's, or what enters the classifier."""
    return not nodes or (len(nodes) == 1 and str(nodes[0]) == nodes[0].name != STAGES)


# ---------------------------------------------------------------- views

MOST_CROPS = 5
LARGER = 7  # with crops, the picture has a seventh more on each side: 256 pixels for 224


@dataclass(frozen=True)
class Views:
    """Which views: mirrored ones, too (``flip``), of so many ``crops``; 0: the whole picture."""

    flip: bool = False
    crops: int = 0

    def __len__(self) -> int:
        return max(self.crops, 1) * (1 + self.flip)

    def __str__(self) -> str:
        return "+".join(["flip"] * self.flip + [f"crops:{self.crops}"] * bool(self.crops))

    def outer(self, side: int) -> int:
        """Side of the square that views of ``side`` are cut from: of 224, with crops, 256."""
        return side + side // LARGER if self.crops else side

    def inner(self, side: int) -> int:
        """The inverse of `outer`; `UsageError` where no view is cut from such a square."""
        for inner in range(side, 0, -1):
            if self.outer(inner) == side:
                return inner
        raise UsageError(f"--views {self}: no view is cut from squares of {side} pixels")

    def corners(self, side: int) -> list[tuple[int, int]]:
        """Top and left of each view of ``side`` in its square."""
        rest = self.outer(side) - side
        places = [(rest // 2, rest // 2), (0, 0), (0, rest), (rest, 0), (rest, rest)]
        return places[: max(self.crops, 1)]


def parse_views(text: str) -> Views:
    """The views that a text such as 'crops:5+flip' names, in any order."""
    words = sorted(text.split("+"))
    crops = [int(match[1]) for one in words if (match := re.fullmatch(r"crops:([2-5])", one))]
    if words != [*(f"crops:{n}" for n in crops[:1]), *["flip"] * ("flip" in words)]:
        form = f"flip, crops:N or flip+crops:N with N from 2 to {MOST_CROPS}"
        raise UsageError(f"--views is {form}; found {text!r}")
    return Views("flip" in words, *crops)
