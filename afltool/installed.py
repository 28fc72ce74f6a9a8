"""Which build this is: `afltool`, or `afltool-light`, which leaves PyTorch out.

Both have the same modules, so an environment has one of them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from .errors import UsageError

TORCH = ("torch", "torchvision")  # what the light build leaves out
FULL = "pip uninstall afltool-light, then pip install afltool"


def has_torch() -> bool:
    """Whether PyTorch can be imported; asking takes no time."""
    return find_spec("torch") is not None


def need_torch(what: str) -> None:
    """`UsageError` with what to install, where PyTorch is not there."""
    if not has_torch():
        raise UsageError(f"{what} needs PyTorch, which is not installed: {FULL}")


def twice(package: Path) -> str:
    """What to do where both builds lie beside each other, the files of one over the other's."""
    found = [x.name for x in package.parent.glob("afltool*.dist-info")]
    if {name.split("-")[0] for name in found} >= {"afltool", "afltool_light"}:
        return (
            "afltool and afltool-light are both installed, over each other: pip uninstall both, "
            "then install one"
        )
    return ""
