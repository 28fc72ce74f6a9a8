"""The mean of a network's features over views of each image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..options.views import Views

if TYPE_CHECKING:
    from torch import Tensor, nn


def over_views(network: nn.Module, views: Views, side: int) -> nn.Module:
    """A network of squares ``(n, 3, outer, outer)`` to the mean over views of ``side``, ``(n, d)``.

    The mean is (f_1 + … + f_V) / V of float32 features, added up in float64 in this order and
    rounded once: each row is computed alone, so it does not depend on the other rows.
    """
    from torch import nn

    class OverViews(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def seen(self, x: Tensor) -> Iterator[Tensor]:
            for top, left in views.corners(side):
                square = x[..., top : top + side, left : left + side]
                yield square
                if views.flip:
                    yield square.flip(-1)

        def forward(self, x: Tensor) -> Tensor:
            parts = [self.network(view).float().double() for view in self.seen(x)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            mean: Tensor = (total / len(parts)).float()
            return mean

    return OverViews().eval()
