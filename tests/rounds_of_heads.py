"""Rounds of a head without files: the next head, and what its file would say of it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from afltool.heads.base import Head
from afltool.values.statistics import Statistics

_REPORTS: WeakKeyDictionary[Head, dict[str, Any]] = WeakKeyDictionary()


def absorb(head: Head, total: Statistics, validation: Statistics | None = None) -> Head:
    """The head one phase further."""
    after, done = head.absorb(total, validation)
    _REPORTS[after] = done.report(report_of(head))
    return after


def report_of(head: Head) -> dict[str, Any]:
    """Figures of a head that `absorb` made, and as ``phases`` its rounds."""
    return _REPORTS.get(head, {})
