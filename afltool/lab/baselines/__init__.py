"""The baselines: methods that papers of this field compare with, on the same cached features.

No sums over rows determine their results, so they are not heads: `afltool baseline` simulates them
and writes a head file. To add one: a module with a subclass of `base.Method`, a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.base import make_options_for
from ...plugins import Registry, import_object
from .settings import PRESETS, Settings

if TYPE_CHECKING:
    from .base import Method


def _check_plugin(text: str, value: Any) -> str:
    """Where a plug-in's method is."""
    if not issubclass(value.settings_class, Settings):
        raise TypeError(f"{text} has no settings_class of lab.baselines.settings.Settings")
    return text


#: Where each method is: a module that begins with a dot is of this package.
METHODS: Registry[str] = Registry(
    "afltool.baselines",
    {
        "fedavg": ".methods:FedAvg",
        "fedprox": ".methods:FedProx",
        "moon": ".methods:Moon",
        "fedgen": ".fedgen:FedGen",
        "feddyn": ".methods:FedDyn",
        "fedntd": ".methods:FedNTD",
        "feddisco": ".methods:FedDisco",
        "fedawa": ".methods:FedAWA",
        "fedlpa": ".one_shot:FedLPA",
        "fedfisher": ".one_shot:FedFisher",
        "local": ".methods:LocalOnly",
        "centralized": ".methods:Centralized",
    },
    _check_plugin,
)


#: What files call a method, where that is another name.
IN_FILES = {"centralized": "centralised"}


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``; `UsageError` names those that exist."""
    if name not in METHODS:
        raise UsageError(f"there is no baseline {name!r}; they are {', '.join(METHODS)}")
    method: type[Method] = import_object(METHODS[name], __package__)
    return method


def get_preset(name: str, preset: str) -> dict[str, Any]:
    """The values of a paper's preset for a method; `UsageError` for another name."""
    if preset not in PRESETS:
        raise UsageError(f"--preset is {' or '.join(PRESETS)}; found {preset!r}")
    return {**PRESETS[preset], **method_class(name).preset}


def make_settings(
    name: str, given: Mapping[str, Any] | None = None, preset: str | None = None
) -> Settings:
    """A method's settings: given options go before a paper's preset, that before the defaults."""
    values = {**(get_preset(name, preset) if preset else {}), **(given or {})}
    return make_options_for(f"the baseline {name!r}", method_class(name).settings_class, values)
