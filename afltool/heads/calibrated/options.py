"""What a calibrated head is made of."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...options.evaluation import Calibration
from ..options import HeadOptions


@dataclass(frozen=True, kw_only=True)
class CalibratedOptions(HeadOptions):
    """``head`` is JSON: name, options and digest of the head whose scores are calibrated."""

    head: str = Field(default="{}", description="JSON: name, options and digest of the head")
    method: Calibration = Field(default="platt", description="kind of the map")

    @property
    def described(self) -> list[dict[str, Any]]:
        """The head, as ``head`` says it; alone in a list."""
        return [json.loads(self.head)]

    @property
    def compute(self) -> str:
        """The arithmetic of the head's products."""
        return str(self.described[0]["options"].get("compute", ""))


OPTIONS = CalibratedOptions
