"""A multilayer perceptron that gradient descent has trained: h ← ReLU(hW + b), scores hW + b.

No sums over rows determine it: `baseline --hidden` trains and writes it, and no federation can
begin with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

from ...cache.carried import Carried
from ...errors import InvalidDataError, UsageError
from ...math.fixedpoint import Rows, real
from ...values.arrays import Array
from ...values.phases import Phase
from ...values.statistics import Statistics
from ..base import Block, Gathered, Head, expect_shape

NOT_SUMS = "a network is trained by gradients (afltool baseline … --hidden), not solved from sums"


class NetworkHead(Head):
    """Weights ``weights-l`` (in, out) and biases ``bias-l`` (out,) of layers l = 0, 1, …"""

    name = "network"
    log_probabilities = True
    layers: tuple[tuple[Array, Array], ...] = ()

    def phase(self) -> Phase | None:
        return None if self.layers else Phase("descent")

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        raise UsageError(NOT_SUMS)

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> NetworkHead:
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

    def _round_features(self, X: Rows) -> Iterator[tuple[str, Array]]:
        """The rows, 'layer-0', and what each hidden layer makes of them, 'layer-1', …"""
        h = real(X)
        for number, (W, b) in enumerate(self.layers):
            yield f"layer-{number}", h
            h = np.maximum(h @ W + b, 0.0)

    def arrays(self) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for number, (W, b) in enumerate(self.layers):
            found |= {f"weights-{number}": W, f"bias-{number}": b}
        return found

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> NetworkHead:
        head = NetworkHead(self.options)
        if phase is not None:
            return head
        numbers = list(takewhile(lambda n: f"weights-{n}" in arrays, count()))
        if not numbers:
            raise InvalidDataError("a network has the array 'weights-0'")
        head.layers = tuple((arrays[f"weights-{n}"], arrays[f"bias-{n}"]) for n in numbers)
        width = None
        for n, (W, b) in zip(numbers, head.layers, strict=True):
            expect_shape(f"weights-{n}", W, (width, None))
            width = W.shape[1]
            expect_shape(f"bias-{n}", b, (width,))
        head.dim, head.classes = len(head.layers[0][0]), width
        return head


HEAD = NetworkHead
