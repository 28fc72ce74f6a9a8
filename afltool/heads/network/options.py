"""Options of the trained network: none of its own, because its arrays say everything."""

from __future__ import annotations

from ..options import HeadOptions

OPTIONS = HeadOptions
