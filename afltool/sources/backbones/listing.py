"""The nodes of a backbone at which features can be taken, as a list for people."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ...options.nodes import PENULTIMATE, STAGES, Node
from .models import load_backbone
from .pooling import TOKENS, form_of
from .stages import Ran, layers_run, prefix_tokens


def nodes_of(name: str, image_size: int) -> list[dict[str, Any]]:
    """Each layer that gives features, in the order they run, then `PENULTIMATE`.

    Raises `UsageError`: an unknown backbone, or one that refuses the size.
    """
    whole = load_backbone(name, weights="random", image_size=image_size)
    taken = _taken(name, image_size)
    classifier = whole.node.removeprefix("input of ")
    layers: list[Ran] = []
    for ran in layers_run(whole.module, image_size):
        if ran.name == classifier:
            break
        if ran.times == 1:
            layers.append(ran)
    rows = [_row(ran, whole.module, taken) for ran in layers]
    found = [row for row in rows if row is not None]
    last = {"name": PENULTIMATE, "layer": whole.node, "width": whole.dim, "output": str(whole.dim)}
    found.append({**last, "stages": PENULTIMATE if taken else None})
    return [{**row, "place": f"{k} of {len(found)}"} for k, row in enumerate(found, 1)]


def _taken(name: str, image_size: int) -> dict[str, str]:
    """The nodes that `STAGES` stands for, by layer names; empty if there are no stages."""
    try:
        nodes = [Node(STAGES)]
        staged = load_backbone(name, weights="random", image_size=image_size, nodes=nodes)
    except UsageError:
        return {}
    return {one.name.partition(":")[0]: one.name for one in staged.slices}


def _row(ran: Ran, module: Any, taken: dict[str, str]) -> dict[str, Any] | None:
    """A layer as a row; None where its output gives no features."""
    import torch

    layer = dict(module.named_modules())[ran.name]
    try:
        form = form_of(
            torch.empty(ran.shape, device="meta"), ran.name, layer, prefix_tokens(module)
        )
    except UsageError:
        return None
    sides = [ran.shape[axis] for axis in form.axes]
    channels = next(n for axis, n in enumerate(ran.shape) if axis and axis not in form.axes)
    over = f" × {sides[0]} tokens" if form.kind == TOKENS else "".join(f" × {n}" for n in sides)
    return {
        "name": ran.name,
        "layer": ran.kind,
        "width": channels,
        "output": f"{channels}{over}",
        "stages": taken.get(ran.name),
    }
