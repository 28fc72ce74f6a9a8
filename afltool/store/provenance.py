"""The versions, machine and time that made a file; in its header, never in a digest or recipe."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

import h5py
import numpy as np

from .. import __version__


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, machine and time, and whatever else a stage wants remembered."""
    return {**versions(), "time": datetime.now(UTC).isoformat(timespec="seconds"), **more}


def versions(**more: Any) -> dict[str, Any]:
    """Versions alone: of files that leave a site, which tell neither when nor where they were made.

    No path, host name or time belongs into ``more`` there.
    """
    return {
        "afltool": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "machine": platform.machine(),
        **more,
    }
