"""Options of `baseline` that are no settings of a method: its files, and how the work is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..options.fields import Options, option


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(Options):
    """What every baseline is run on."""

    partition: Path = option(help="who owns which row")
    test: Path = option(help="features with labels to measure the accuracy on")
    preset: str | None = option(
        None, "a paper's settings; options given beside it win", choices=("afl", "deepafl")
    )
    threads: int | None = option(
        None,
        "clients trained at the same time",
        at_least=1,
        at_most=4096,
        unset="one per core",
        in_result=False,
    )
    stack: int | None = option(
        None,
        "clients trained in one product by each thread",
        at_least=1,
        at_most=4096,
        unset="as many as a cache of 1 MB holds, at most 16",
        in_result=False,
    )
