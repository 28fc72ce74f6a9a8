"""What `extract --list-nodes` shows: the places of a network that features can be taken at."""

from __future__ import annotations

from typing import Any

from ..options.features import ExtractOptions


def list_nodes(options: ExtractOptions) -> list[dict[str, Any]]:
    """The layers of a backbone that give features, in the order they run, and its `penultimate`.

    Each with ``name``, ``layer`` (its class), ``width`` (features of one image once pooled),
    ``output`` (channels and positions, or tokens and width), ``place`` (its number of how many)
    and ``stages``: what `--node stages` takes of it, or None. No image and no weights are read;
    layers that run more than once or behind the classifier are left out. Nodes of the traced graph
    that are no layers are not listed.
    """
    from ..backbones import nodes_of
    from ..extraction.asked import Asked

    side = options.seen.inner(Asked(options).preprocessing().crop)
    return nodes_of(options.backbone, side)
