"""The baselines as programs call them; `afltool.api` has the stages."""

from __future__ import annotations

from pathlib import Path

from ...api import stage_function
from .settings import Baseline

baseline = stage_function(Baseline, Path)
