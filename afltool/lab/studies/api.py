"""The studies as programs call them; `afltool.api` has the stages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api import stage_function
from .options import Report, RunStudy, TableOf

if TYPE_CHECKING:
    from .result_table import ResultTable

study = stage_function(RunStudy, Path)
report = stage_function(Report, Path)


def table(*args: Any, **options: Any) -> ResultTable:
    """The table of a study: rows and columns by options, means over seeds."""
    from .tables import table as stage

    return stage(TableOf(*args, **options))
