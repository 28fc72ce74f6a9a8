"""Options of the trained network: it has none, because its arrays say everything."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import HeadOptions


@dataclass(frozen=True, kw_only=True)
class NetworkHeadOptions(HeadOptions):
    """A trained network has no options."""


OPTIONS = NetworkHeadOptions
