"""Files of weights: read without running code in them, and checked."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CorruptFileError, InputError, InvalidDataError, UsageError
from .families import State

if TYPE_CHECKING:
    from torch import nn


def read_state(path: Path) -> State:
    """The tensors of a weights file: plain, or below ``state_dict`` or ``model``.

    Raises `InputError`, `CorruptFileError`: unreadable, or more than tensors; `UsageError`:
    .safetensors without that package.
    """
    if not path.is_file():
        raise InputError(f"expected weights in {path}: there is no such file; check the path")
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


def check_types(network: nn.Module, state: State, what: str) -> None:
    """Refuse integers that stand for weights, which torch would load without a word."""
    for key, own in network.state_dict().items():
        if key in state and state[key].is_floating_point() != own.is_floating_point():
            raise InvalidDataError(
                f"{what}: expected {own.dtype} under {key}, found {state[key].dtype}; save "
                "model.state_dict() as it was trained"
            )


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
