"""The heads by name. This package loads their options alone; a module loads when it is used.

To add a head: a class derived from `base.Head`, its line in `OWN_HEADS` of `options.common`, its
options in `OWN`, and what `export` writes of it in `graphs`. A plug-in is a module with ``HEAD``,
``OPTIONS`` and a function ``graph``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..options.base import Absent, by_name, get_fields, make_options_for
from ..options.common import OWN_HEADS
from ..plugins import Registry, import_object
from .deepafl.options import DeepAFLOptions
from .options import DiscriminantOptions, HeadOptions, LinearOptions, RandomFeaturesOptions
from .safle.options import SafleOptions
from .softmax.options import SoftmaxOptions

if TYPE_CHECKING:
    from .base import Head

OWN: dict[str, type[HeadOptions]] = {
    "linear": LinearOptions,
    "deepafl": DeepAFLOptions,
    "random-features": RandomFeaturesOptions,
    "safle": SafleOptions,
    "softmax": SoftmaxOptions,
    "discriminant": DiscriminantOptions,
    "network": HeadOptions,  # its arrays say everything
}


def _check_plugin(module: str, found: Any) -> str:
    """Where the head of a plug-in is, if the command line can have its options."""
    if not issubclass(found.OPTIONS, HeadOptions):
        raise TypeError(f"{module}.OPTIONS is no class of heads.options.HeadOptions")
    return f"{module}:HEAD"


HEADS: Registry[str] = Registry("afltool.heads", OWN_HEADS, _check_plugin)
#: Every name that a head's file may have: what something else has trained, what sites gather for
#: and nobody solves, the round before all heads, and the heads that a federation can begin with.
KNOWN: Mapping[str, str] = ChainMap(
    {"network": ".network:NetworkHead", "calibrated": ".calibration:CalibratedHead"},
    {"evaluation": ".evaluation:Evaluation", "scaling": ".scaling:ScalingHead"},
    HEADS,  # type: ignore[arg-type]  # it is only read
)


class Names(Collection[str]):
    """Names in several places, of which one is looked at for a name that is in none before it."""

    def __init__(self, places: Callable[[], Iterator[Collection[str]]]) -> None:
        self._places = places

    def __contains__(self, name: object) -> bool:
        return any(name in place for place in self._places())

    def __iter__(self) -> Iterator[str]:
        return iter({name for place in self._places() for name in place})

    def __len__(self) -> int:
        return len(set(self))


#: The options of all heads; plug-ins are loaded for a name that no head of afltool has.
HEAD_NAMES = Names(lambda: ({*get_fields(options_class(name))} - {"seed"} for name in HEADS))


def head_class(name: str) -> type[Head]:
    """The class of the head called ``name``; `UsageError` names those that exist."""
    head: type[Head] = import_object(_place(name), __name__)
    return head


def options_class(name: str) -> type[HeadOptions]:
    """The options class of the head called ``name``; `UsageError` names those that exist."""
    options: type[HeadOptions] = OWN.get(name) or import_object(
        f"{_place(name).partition(':')[0]}:OPTIONS", __name__
    )
    return options


def _place(name: str) -> str:
    if name not in KNOWN:
        raise UsageError(f"there is no head {name!r}; the heads are {', '.join(HEADS)}")
    return KNOWN[name]


def make_options(name: str, options: Mapping[str, Any] | None = None) -> HeadOptions:
    """The options of the head called ``name``, checked; those not given keep their defaults."""
    cls, given = options_class(name), dict(options or {})
    for option, gone in cls.GONE.items():
        left = gone.value if isinstance(gone, Absent) else gone
        if (found := given.pop(option, left)) != left:
            why = f"the head {name!r} has {option!r} no longer; found {found!r}"
            raise UsageError(f"{why}, which afltool 0.3 makes and reads")
    return make_options_for(f"the head {name!r}", cls, given)


def make_head(name: str, options: Mapping[str, Any] | None = None) -> Head:
    """A new head before its first phase; options not given keep their defaults."""
    return head_class(name).begin(make_options(name, options))


def read_head(name: str, stored: Mapping[str, Any]) -> Head:
    """The head before its first phase whose options a file has, as `HeadOptions.as_dict` writes."""
    return make_head(name, by_name(options_class(name), stored))
