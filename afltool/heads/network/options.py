"""Options of the trained network: none, its arrays say everything."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import Options


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """A trained network has no options."""


OPTIONS = NetworkOptions
