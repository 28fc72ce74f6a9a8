"""The rivals as cells of studies have them: the one place where a study knows the rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..options.partition import PartitionOptions
from ..rivals import METHODS as METHODS
from ..rivals import make_settings, method_class, preset_of
from ..rivals.settings import BaselineFolder, BaselineOptions, Settings

HEAD = BaselineFolder.HEAD
OF_BASELINE = {f.name for f in fields(BaselineOptions)} - {"partition", "test"}
_OF_CLIENTS = {f.name for f in fields(PartitionOptions)} - {"seed"}


@lru_cache
def own_names(method: str) -> dict[str, str]:
    """The names of a baseline's options in a study.

    It is the option's own name, or ``method-NAME`` if the partition has an option of that name.
    """
    settings = {f.name for f in fields(method_class(method).settings_class)}
    return {
        f"method_{name}" if name in _OF_CLIENTS else name: name for name in settings | OF_BASELINE
    }


def values(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a baseline; a preset by its values, which several papers share."""
    preset = given.get("preset")
    if preset is None:
        return dict(given)
    return {**preset_of(method, preset), **{k: v for k, v in given.items() if k != "preset"}}


def made_settings(method: str, given: Mapping[str, Any]) -> Settings:
    """All settings of a baseline, its preset and defaults resolved."""
    return make_settings(method, _of_method(given), given.get("preset"))


def baseline(
    method: str, files: tuple[Path, Path, Path], out: Path, given: Mapping[str, Any], again: bool
) -> None:
    """Carry a cell out, with ``files``: training and test features, and the partition."""
    from ..rivals.stage import baseline as stage

    train, test, partition = files
    own = {k: v for k, v in given.items() if k in OF_BASELINE}
    options = BaselineOptions(test=test, partition=partition, **own)
    stage(method, train, out, options, settings=_of_method(given), overwrite=again)


def _of_method(given: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k not in OF_BASELINE}
