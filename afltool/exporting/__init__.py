"""What `export` writes: a model with its metadata, packed as a file of another program's format.

To add a format: a module with two functions, and its line in `FORMATS`. ``pack(model)`` gives the
bytes of the file, ``run(data, model, given)`` what it makes of a batch, by `Model.outputs`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..plugins import Registry, install

#: The end of a file's name, the module that packs it, and the packages of the extra that it needs.
FORMATS: Registry[tuple[str, tuple[str, ...]]] = Registry(
    "afltool.exporters",
    {
        ".onnx": (".onnx_files", ("onnx", "onnxscript", "onnxruntime")),
        ".pt2": (".pt2_files", ()),
    },
    lambda text, _: (text, ()),
)


def get_format(path: Path) -> Any:
    """The module of the format that a file's name ends with; `UsageError` for another ending, and
    where a package is missing."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    module, packages = FORMATS[path.suffix.lower()]
    for package in packages:
        if find_spec(package) is None:
            raise UsageError(f"this file needs {package}: {install('export')}")
    return import_module(module, __name__)
