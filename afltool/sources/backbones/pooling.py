"""Turns the output of a layer into one row of numbers per image, by pooling maps and tokens.

Square images give square maps, so the two equal axes are the positions; tokens are
``(n, t, d)``, the first ``prefix`` of them (class token, registers) stand for no position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

AVERAGED = ", averaged over positions"  # behind the name of a node with maps
ROWS, MAPS, TOKENS = "rows", "maps", "tokens"
_SAID = {"mean": "averaged", "max": "the maximum"}


@dataclass(frozen=True)
class Form:
    """The layout of an output: its ``kind``, axes of positions, number of tokens without one."""

    kind: str
    axes: tuple[int, ...] = ()
    prefix: int = 0


def form_of(x: Tensor, what: str, layer: nn.Module | None = None, prefix: int = 0) -> Form:
    """The form of a layer's output.

    ``layer``: its convolutions decide which axis has the channels if the shape does not.

    Raises `UsageError`: a shape that is none of these.
    """
    shape = tuple(x.shape)
    if x.ndim == 2:
        return Form(ROWS)
    if x.ndim == 3:
        return Form(TOKENS, (1,), prefix)
    if x.ndim == 4 and shape[2] == shape[3] and (shape[1] != shape[3] or _convolves(layer)):
        return Form(MAPS, (2, 3))
    if x.ndim == 4 and shape[1] == shape[2] != shape[3]:
        return Form(MAPS, (1, 2))
    raise UsageError(
        f"{what} gives the shape (n, {', '.join(map(str, shape[1:]))}); expected (n, d), or a map "
        "of d channels over s × s positions with d ≠ s, which is averaged. Take another node."
    )


def _convolves(layer: nn.Module | None) -> bool:
    """Whether a layer has convolutions over maps, whose channels are the second axis."""
    from torch import nn

    return layer is not None and any(isinstance(m, nn.Conv2d) for m in layer.modules())


def poolings_of(form: Form, pooling: str | None, what: str, shape: tuple[int, ...]) -> list[str]:
    """The poolings of an output, in order: some of ``mean``, ``max``, ``token``; [] for rows.

    Raises `UsageError`: a pooling that the form does not have.
    """
    sizes = ", ".join(map(str, shape[1:]))
    if form.kind == ROWS:
        if pooling is None:
            return []
        raise UsageError(f"{what} gives the shape (n, {sizes}): there is nothing to pool")
    if form.kind == TOKENS and pooling is None:
        raise UsageError(
            f"{what} gives the shape (n, {sizes}); expected (n, d), or a map of d channels over "
            "s × s positions, which is averaged. For tokens, say what is taken: NODE:mean, "
            "NODE:max or, of networks with a class token, NODE:token+mean. Or take another node."
        )
    wanted = (pooling or "mean").split("+")
    if "token" in wanted and (form.kind != TOKENS or not form.prefix):
        raise UsageError(f"{what} gives the shape (n, {sizes}), which has no class token")
    return wanted


def pooled(x: Tensor, form: Form, wanted: list[str]) -> Tensor:
    """``(n, d)`` from a layer's output; several poolings are put side by side."""
    import torch

    if not wanted:
        return x
    parts = [_one(x, form, kind) for kind in wanted]
    return parts[0] if len(parts) == 1 else torch.cat([part.float() for part in parts], dim=1)


def _one(x: Tensor, form: Form, kind: str) -> Tensor:
    if kind == "token":
        return x[:, 0]
    places = x[:, form.prefix :] if form.prefix else x
    return places.mean(dim=form.axes) if kind == "mean" else places.amax(dim=form.axes)


def said(form: Form, wanted: list[str]) -> str:
    """The pooling in words, to append to the name of the output; '' for rows."""
    if not wanted:
        return ""
    over = "positions" if form.kind == MAPS else "tokens"
    words = [_SAID[kind] for kind in wanted if kind in _SAID]
    parts = ["class token"] if "token" in wanted else []
    parts += [f"{' and '.join(words)} over {over}"] if words else []
    return ", " + " and ".join(parts)
