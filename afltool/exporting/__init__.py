"""What `export` writes: a model with its metadata, packed as a file of another program's format.

To add a format: a module here with ``pack(model)`` and ``run(data, model, given)``, and its line in
`FORMATS`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import UsageError

if TYPE_CHECKING:
    from ..arrays import Array
    from .model import Model

#: The end of a file's name, and the module that packs it.
FORMATS = {".onnx": "onnx_files", ".pt2": "pt2_files", ".safetensors": "safetensors_files"}


class Format(Protocol):
    """One kind of file."""

    def need(self) -> None:
        """Refuse, with what to install, where a package is missing."""
        ...

    def pack(self, model: Model) -> bytes:
        """The file."""
        ...

    def run(self, data: bytes, model: Model, given: Array) -> dict[str, Array]:
        """What the packed file makes of a batch, by the names of `Model.outputs`."""
        ...


def format_of(path: Path) -> Format:
    """The format that a file's name ends with; `UsageError` names those that exist."""
    module = FORMATS.get(path.suffix.lower())
    if module is None:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    found: Any = import_module(f".{module}", __name__)
    return cast(Format, found)


def missing(package: str) -> UsageError:
    """What is said where a package of the extra is not installed."""
    return UsageError(f"this file needs {package}: pip install 'afltool[export]'")
