"""What CSV does with texts that a spreadsheet would run as a formula."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .fields import Options, option

KEEP, QUOTE = "keep", "quote"


@dataclass(frozen=True, kw_only=True)
class CsvOptions(Options):
    """Of every command that writes CSV."""

    _formulas = (
        "texts in CSV that a spreadsheet would run as formulas (they begin with = + - @, and "
        "are not numbers): keep them as they are, or quote: put ' before them"
    )
    formulas: str = option(KEEP, _formulas, choices=(KEEP, QUOTE), in_result=False)


def is_csv(path: object) -> bool:
    """Whether a table goes to this path as CSV: by its name, or on stdout ('-')."""
    return str(path).lower().endswith(".csv") or str(path) == "-"


def check_formulas(formulas: str, writes_csv: bool) -> None:
    """Refuse to quote formulas where no CSV is written."""
    if formulas != KEEP and not writes_csv:
        raise UsageError(f"--formulas {formulas} is for CSV; this command writes no CSV")
