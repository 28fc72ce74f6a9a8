"""A multilayer perceptron that gradient descent has trained: h ← ReLU(hW + b), scores hW + b.

No sums over rows determine it: `baseline --hidden` trains and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidDataError
from ..math.gram import Rows, real
from ..values.arrays import F64, Array
from ..values.names import Phase
from .base import Classifier, Shape, numbered_arrays


@dataclass(frozen=True, eq=False)
class NetworkHead(Classifier):
    """Weights ``weights-l`` (in, out) and biases ``bias-l`` (out,) of layers l = 0, 1, …"""

    name = "network"
    score_kind = "log-probabilities"
    layers: tuple[tuple[Array, Array], ...] = ()

    def decision_function(self, X: Rows) -> F64:
        """The last layer's output (n, C), float64; softmax of it gives the probabilities."""
        h, (last, offset) = real(X), self.layers[-1]
        for W, b in self.layers[:-1]:
            h = np.maximum(h @ W + b, 0.0)
        return np.asarray(h @ last + offset)

    def state_dict(self) -> dict[str, Array]:
        every = enumerate(self.layers)
        return {k: a for n, (W, b) in every for k, a in ((f"weights-{n}", W), (f"bias-{n}", b))}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        layers = zip(
            numbered_arrays(arrays, "weights-{}"), numbered_arrays(arrays, "bias-{}"), strict=True
        )
        if not arrays:
            raise InvalidDataError("a network without layers: nothing has trained it")
        return replace(self, layers=tuple(layers))._in_phase(phase)

    def _state_shapes(self) -> Mapping[str, Shape]:
        width, classes = self._bound()
        shapes: dict[str, Shape] = {}
        for n, (W, _) in enumerate(self.layers):
            after = classes if n + 1 == len(self.layers) else W.shape[-1]
            shapes |= {f"weights-{n}": (width, after), f"bias-{n}": (after,)}
            width = after
        return shapes
