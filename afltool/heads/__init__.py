"""The heads by name. Importing this package costs nothing; a head's module loads when it is used.

To add a head: an options class in `options`, a module with a subclass of `base.Head`, a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..typed import typed
from .options import LinearOptions, Options, SafleOptions
from .random_options import DeepAFLOptions, RandomFeaturesOptions
from .softmax_options import SoftmaxOptions

if TYPE_CHECKING:
    from .base import Head

OPTIONS: dict[str, type[Options]] = {
    "linear": LinearOptions,
    "deepafl": DeepAFLOptions,
    "random-features": RandomFeaturesOptions,
    "safle": SafleOptions,
    "softmax": SoftmaxOptions,
}
_CLASSES = {
    "linear": "linear:LinearHead",
    "deepafl": "deepafl:DeepAFLHead",
    "random-features": "random_features:RandomFeaturesHead",
    "safle": "safle:SafleHead",
    "softmax": "softmax:SoftmaxHead",
}


def head_class(name: str) -> type[Head]:
    """The class of the head called ``name``; `UsageError` names those that exist."""
    if name not in _CLASSES:
        raise UsageError(f"there is no head {name!r}; the heads are {', '.join(_CLASSES)}")
    module, cls = _CLASSES[name].split(":")
    found: type[Head] = getattr(import_module(f".{module}", __package__), cls)
    return found


def make_head(name: str, options: Mapping[str, Any] | None = None) -> Head:
    """A new head before its first phase; options not given keep their defaults."""
    cls = head_class(name)
    known = {f.name for f in fields(OPTIONS[name])}
    unknown = sorted(set(options or {}) - known)
    if unknown:
        raise UsageError(
            f"the head {name!r} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}"
        )
    types = {f.name: f.type for f in fields(OPTIONS[name])}
    return cls(OPTIONS[name](**{k: typed(types[k], k, v) for k, v in (options or {}).items()}))
