"""What `--node` says: a place in a network, how it is pooled, and a scale that is agreed on.

    NAME[:POOLING][*SCALE]        blocks.5    layer3:mean+max    encoder.layers.5:token*0.125

NAME is a layer, a node of the traced graph, or `PENULTIMATE`; `STAGES` stands for several of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import frexp

from ..errors import UsageError
from ..values.parsed import Parsed

PENULTIMATE = "penultimate"  # what enters the classifier
STAGES = "stages"  # it, and the ends of the network's last stages
POOLINGS = ("mean", "max", "mean+max", "token", "token+mean")
MOST_SHIFT = 15  # a scale moves the point of int16 by so many places at the most


@dataclass(frozen=True)
class Node(Parsed):
    """A place called ``name``, its ``pooling`` (None: as the shape asks), times ``scale`` = 2^k."""

    name: str
    pooling: str | None = None
    scale: float = 1.0

    @property
    def slice_name(self) -> str:
        """What its features are called, whatever their scale."""
        return self.name if self.pooling is None else f"{self.name}:{self.pooling}"

    @property
    def bare(self) -> bool:
        """Nothing but a name."""
        return self.pooling is None and self.scale == 1.0

    def __str__(self) -> str:
        return self.slice_name + ("" if self.scale == 1.0 else f"*{self.scale:g}")


def parse_node(text: str) -> Node:
    """The node that a text names.

    >>> parse_node("blocks.5:max*1/8")
    Node(name='blocks.5', pooling='max', scale=0.125)
    """
    place, star, factor = text.partition("*")
    name, colon, pooling = place.partition(":")
    if not name or (colon and pooling not in POOLINGS):
        raise UsageError(
            f"--node is NAME, NAME:POOLING or NAME:POOLING*SCALE, with a pooling of "
            f"{', '.join(POOLINGS)}; found {text!r}"
        )
    if name == PENULTIMATE and colon:
        raise UsageError(f"--node {text}: what enters the classifier is pooled by the network")
    return Node(name, pooling or None, _scale(text, factor) if star else 1.0)


def _scale(text: str, factor: str) -> float:
    """A power of two, as 0.125, 8 or 1/8: the products of int16 features stay exact."""
    match = re.fullmatch(r"(?:1/)?(\d+(?:\.\d+)?)", factor)
    value = float(match[1]) if match else 0.0
    if factor.startswith("1/") and value:
        value = 1.0 / value
    mantissa, exponent = frexp(value)
    if mantissa != 0.5 or abs(exponent - 1) > MOST_SHIFT:
        raise UsageError(
            f"--node {text}: a scale is a power of two from 2^-{MOST_SHIFT} to 2^{MOST_SHIFT}, "
            f"such as 0.125 or 1/8; found {factor!r}"
        )
    return value


def parse_nodes(texts: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes in the order given.

    Raises:
        UsageError: a text that names none, or a node twice.
    """
    nodes = tuple(parse_node(text) for text in texts)
    refuse_twice([node.slice_name for node in nodes])
    return nodes


def refuse_twice(names: list[str]) -> None:
    """Refuse a list in which a node stands twice."""
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise UsageError(f"--node {twice[0]} is given twice; each slice of the features is one")


def one_plain_place(nodes: tuple[Node, ...]) -> bool:
    """Whether the features are one bare node's, or what enters the classifier."""
    return not nodes or (len(nodes) == 1 and nodes[0].bare and nodes[0].name != STAGES)
