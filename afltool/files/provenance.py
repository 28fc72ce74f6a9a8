"""The versions, machine and time that made a file; in its header, never in a digest or recipe."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

import h5py
import numpy as np

from .. import __version__
from ..doors import USED


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, machine and time, and what else a stage gives."""
    return {**versions(), "time": datetime.now(UTC).isoformat(timespec="seconds"), **more}


def versions(**more: Any) -> dict[str, Any]:
    """Versions alone, for files that leave a site and must not say when or where they were made.

    Put no path, host name or time into ``more``.
    """
    return {
        "afltool": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "machine": platform.machine(),
        **({"plugins": dict(sorted(USED))} if USED else {}),
        **more,
    }
