"""Files of weights: read without running code in them, and checked."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CorruptFileError, InvalidDataError
from ..plugins import need

if TYPE_CHECKING:
    from torch import Tensor, nn

State = Mapping[str, "Tensor"]


def read_state(path: Path) -> State:
    """The tensors of a weights file: plain, or below ``state_dict`` or ``model``.

    The prefix ``module.``, which data-parallel training leaves, is dropped.
    """
    import torch

    if path.suffix == ".safetensors":
        need(str(path), "import", "safetensors")
    try:
        content = _read(path)
    # Damaged archives raise nearly every built-in exception.
    except Exception as error:
        raise CorruptFileError(
            f"{path} is not a file of weights ({type(error).__name__}). Expected what "
            "torch.save(model.state_dict(), FILE) writes, nothing but tensors, or .safetensors."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise InvalidDataError(
            f"{path}: expected a dict of tensors, found {type(content).__name__}."
        )
    for key, value in content.items():
        if not (isinstance(key, str) and isinstance(value, torch.Tensor)):
            raise InvalidDataError(
                f"{path}: expected names and tensors, found a {type(value).__name__} under "
                f"{str(key)[:60]!r}; save model.state_dict()"
            )
    whole = all(key.startswith("module.") for key in content)
    return {key.removeprefix("module.") if whole else key: v for key, v in content.items()}


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    import torch

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type for member in archive.infolist()):
                raise ValueError("a packed archive, which may unpack to any size")
    return torch.load(path, map_location="cpu", weights_only=True)


def check_types(network: nn.Module, state: State, what: str) -> None:
    """Refuse integers and complex numbers that torch would load as weights without a word."""
    for key, own in network.state_dict().items():
        if key in state and state[key].is_floating_point() != own.is_floating_point():
            raise InvalidDataError(
                f"{what}: expected {own.dtype} under {key}, found {state[key].dtype}; save "
                "model.state_dict() as it was trained"
            )


def digest_of_state(module: nn.Module) -> str:
    """SHA-256 (hex) over name, dtype, shape and bytes of each tensor, sorted by name."""
    sha = hashlib.sha256()
    for key, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        sha.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
