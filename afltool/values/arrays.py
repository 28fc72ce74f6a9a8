"""Names of the types of arrays, and what is found out about a read-only array once.

A head of many rounds holds the arrays of all rounds before, and each round writes and looks at all
of them. An array that nobody may write into stays as it is: what is known of it is a pure memo.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
T = TypeVar("T")


class Once(Generic[T]):
    """A function of an array, computed once for each read-only one; nothing keeps the array alive.

    >>> import numpy as np
    >>> seen = []
    >>> total = Once(lambda a: seen.append(a) or float(a.sum()))
    >>> a = np.ones(3)
    >>> a.setflags(write=False)
    >>> total(a), total(a), len(seen)
    (3.0, 3.0, 1)
    """

    def __init__(self, compute: Callable[[Array], T]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[weakref.ref[Array], T]] = {}

    def __call__(self, array: Array) -> T:
        if array.flags.writeable:
            return self._compute(array)
        key = id(array)
        known = self._known.get(key)
        if known is not None and known[0]() is array:
            return known[1]
        value = self._compute(array)
        forget = weakref.ref(array, lambda _: self._known.pop(key, None))
        self._known[key] = forget, value
        return value


def freeze(arrays: Iterable[Array]) -> None:
    """Let nobody write into these arrays any more."""
    for array in arrays:
        array.setflags(write=False)
