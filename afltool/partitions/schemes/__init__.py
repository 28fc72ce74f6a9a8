"""The schemes that deal rows to clients, each in a module with a function ``deal``.

To add a scheme: a module here, named as the scheme with ``_`` for ``-``, and its line in
`afltool.options.partition.SCHEMES`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ...doors import opened
from ...options.partition import SCHEMES
from ...values.arrays import I64
from ..common import Dealt, SchemeOptions


def scheme(name: str) -> Callable[[I64, SchemeOptions], Dealt]:
    """``deal(labels, options)`` of a scheme: labels in canonical order → client per row, names."""
    own = f".{name.replace('-', '_')}"
    module = opened(SCHEMES.group)[name] if name in SCHEMES.added else import_module(own, __name__)
    found: Callable[[I64, SchemeOptions], Dealt] = module.deal
    return found
