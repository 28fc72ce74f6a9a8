"""A multilayer perceptron that gradient descent has trained: h ← ReLU(hW + b), scores hW + b.

No sums over rows determine it: `baseline --hidden` trains and writes it, and no federation can
begin with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..math.gram import Rows, real
from ..memory import Carried
from ..values.arrays import Array
from ..values.names import Phase
from ..values.statistics import Statistics
from .base import Block, Found, Gathered, Head, numbered

NOT_SUMS = "a network is trained by gradients (afltool baseline … --hidden), not solved from sums"


@dataclass(frozen=True, eq=False)
class NetworkHead(Head):
    """Weights ``weights-l`` (in, out) and biases ``bias-l`` (out,) of layers l = 0, 1, …"""

    name = "network"
    log_probabilities = True
    layers: tuple[tuple[Array, Array], ...] = ()

    def phase(self) -> Phase | None:
        return None if self.layers else Phase("descent")

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        raise UsageError(NOT_SUMS)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        raise UsageError(NOT_SUMS)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """The last layer's output (n, C), float64; softmax of it gives the probabilities."""
        if not self.layers:
            raise UsageError(NOT_SUMS)
        h = real(X)
        for W, b in self.layers[:-1]:
            h = np.maximum(h @ W + b, 0.0)
        W, b = self.layers[-1]
        return np.asarray(h @ W + b)

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """The rows, 'layer-0', and what each hidden layer makes of them, 'layer-1', …"""
        h = real(X)
        for number, (W, b) in enumerate(self.layers):
            yield Phase.of("layer", number), h
            h = np.maximum(h @ W + b, 0.0)

    def arrays(self) -> dict[str, Array]:
        named: dict[str, Array] = {}
        for number, (W, b) in enumerate(self.layers):
            named |= {f"weights-{number}": W, f"bias-{number}": b}
        return named

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        layers = zip(numbered(arrays, "weights-{}"), numbered(arrays, "bias-{}"), strict=True)
        return replace(self, layers=tuple(layers))._checked(phase)

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        width, classes = self._bound()
        shapes: dict[str, tuple[int | None, ...]] = {}
        for n, (W, _) in enumerate(self.layers):
            after = classes if n + 1 == len(self.layers) else W.shape[-1]
            shapes |= {f"weights-{n}": (width, after), f"bias-{n}": (after,)}
            width = after
        return shapes


HEAD = NetworkHead
