"""The baselines: methods that papers of this field compare with, on the same cached features.

No sums over rows determine their results, so they are not heads: `afltool baseline` simulates them
and writes a head file. To add one: a module with a subclass of `base.Method`, a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.base import made_for
from ...plugins import Registry, located
from .settings import PRESETS, Settings

if TYPE_CHECKING:
    from .base import Method


def _checked(text: str, value: Any) -> str:
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
    _checked,
)


#: What files call a method, where that is another name.
IN_FILES = {"centralized": "centralised"}


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``; `UsageError` names those that exist."""
    if name not in METHODS:
        raise UsageError(f"there is no baseline {name!r}; they are {', '.join(METHODS)}")
    method: type[Method] = located(METHODS[name], __package__)
    return method


def preset_of(name: str, preset: str) -> dict[str, Any]:
    """The values of a paper's preset for a method; `UsageError` for another name."""
    if preset not in PRESETS:
        raise UsageError(f"--preset is {' or '.join(PRESETS)}; found {preset!r}")
    return {**PRESETS[preset], **method_class(name).preset}


def make_settings(
    name: str, given: Mapping[str, Any] | None = None, preset: str | None = None
) -> Settings:
    """A method's settings: given options go before a paper's preset, that before the defaults."""
    values = {**(preset_of(name, preset) if preset else {}), **(given or {})}
    return made_for(f"the baseline {name!r}", method_class(name).settings_class, values)
