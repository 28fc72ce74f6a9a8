"""Files of weights: read without running code in them, checked, and loaded into a network."""

from __future__ import annotations

import hashlib
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CorruptFileError, InputError, InvalidDataError, UsageError
from ...inputs import meant
from .families import State

if TYPE_CHECKING:
    from torch import nn


def read_state(path: Path) -> State:
    """The tensors of a weights file: plain, or below ``state_dict`` or ``model``.

    Raises `InputError`, `CorruptFileError`: unreadable, or more than tensors; `UsageError`:
    .safetensors without that package.
    """
    if not path.is_file():
        raise InputError(
            f"expected weights in {path}: there is no such file; {meant(path, 'check the path.')}"
        )
    try:
        _refuse_packed(path)
        content = _read(path)
    except (UsageError, InvalidDataError):
        raise
    # Damaged archives raise nearly every built-in exception.
    except Exception as error:
        raise CorruptFileError(
            f"{path} is not a file of weights ({type(error).__name__}). Expected what "
            "torch.save(model.state_dict(), FILE) writes, nothing but tensors, or .safetensors."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    return _tensors_only(content, path)


def _refuse_packed(path: Path) -> None:
    """torch.save does not compress: an archive that unpacks to more than the file is a bomb."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        claimed = sum(member.file_size for member in archive.infolist())
    if claimed > path.stat().st_size:
        raise InvalidDataError(
            f"{path}: an archive of {path.stat().st_size:,} bytes that unpacks to {claimed:,}; "
            "expected what torch.save writes, which is not compressed."
        )


def _read(path: Path) -> Any:
    if path.suffix != ".safetensors":
        import torch

        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'.") from error
    return load_file(path)


def _tensors_only(content: Any, path: Path) -> State:
    """Drop the prefix ``module.`` that data-parallel training leaves."""
    if not isinstance(content, Mapping) or not content:
        raise InvalidDataError(
            f"{path}: expected a dict of tensors, found {type(content).__name__}."
        )
    for key, value in content.items():
        if odd := _what_is_odd(key, value):
            raise InvalidDataError(
                f"{path}: expected a dict of names and dense tensors of real numbers; under "
                f"{str(key)[:60]!r} it has {odd}. Save model.state_dict() on a CPU."
            )
    if all(key.startswith("module.") for key in content):
        return {key.removeprefix("module."): value for key, value in content.items()}
    return dict(content)


def _what_is_odd(key: object, value: Any) -> str | None:
    """Why this entry of a state dict cannot be used as it is; None if it can."""
    import torch

    if not isinstance(key, str):
        return f"a key of type {type(key).__name__}"
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return f"a tensor of layout {value.layout}"
    if value.device.type != "cpu":
        return f"a tensor without numbers (device {value.device})"
    if value.is_complex():
        return f"numbers of type {value.dtype}"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"a view that repeats its numbers, of shape {_shape(value)}"
    return None


def load_state(module: nn.Module, state: State, classifier: str | None, what: str) -> None:
    """Load ``state`` into ``module``, strictly; its ``classifier``, if any, is cut off already.

    A classifier in ``state`` is ignored, and so is a missing count of batches, which old files
    lack and which changes nothing.

    Raises `InvalidDataError`: names or shapes differ; the first few are listed.
    """
    own = module.state_dict()
    cut = (f"{classifier}.weight", f"{classifier}.bias")
    given = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    given |= {key: value for key, value in state.items() if key not in cut}
    both = [(key, given[key], own[key]) for key in own if key in given]
    problems = {
        "missing": [key for key in own if key not in given],
        "unexpected": [key for key in given if key not in own],
        "of another shape": [
            f"{key} ({_shape(a)} instead of {_shape(b)})"
            for key, a, b in both
            if a.shape != b.shape
        ],
        "of another type": [
            f"{key} ({a.dtype} instead of {b.dtype})"
            for key, a, b in both
            if a.is_floating_point() != b.is_floating_point()
        ],
    }
    kinds = [
        f"{len(keys)} {kind}, first {', '.join(keys[:3])}"
        for kind, keys in problems.items()
        if keys
    ]
    if kinds:
        raise InvalidDataError(
            f"{what}: expected the {len(own)} tensors of this network, found {len(given)}; "
            f"{'; '.join(kinds)}. Are they weights of this backbone (and, for a vision "
            "transformer, image size)?"
        )
    complete: Any = OrderedDict(given)
    # Says that the names are the current ones, so that no layer converts from older ones; torch
    # sets this attribute on a dict, which has none to mypy.
    complete._metadata = own._metadata  # type: ignore[attr-defined]
    module.load_state_dict(complete)


def _shape(tensor: Any) -> str:
    return "×".join(str(side) for side in tensor.shape) or "scalar"


def digest_of_state(module: nn.Module) -> str:
    """SHA-256 (hex) over name, dtype, shape and bytes of each tensor, sorted by name."""
    sha = hashlib.sha256()
    for key, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        sha.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
