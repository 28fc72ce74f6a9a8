"""Who made a file, with what and when: recorded in its header, never part of a digest or recipe."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

import h5py
import numpy as np

from .. import __version__


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, machine and time, and whatever else a stage wants remembered."""
    return {
        "afltool": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "machine": platform.machine(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }
