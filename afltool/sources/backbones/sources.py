"""The interface of a source of architectures and published weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InputError, UsageError
from .preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import Tensor, nn

State = Mapping[str, "Tensor"]


class Source(Protocol):
    """One architecture and the weights published for it."""

    name: str

    def weight_names(self) -> list[str]:
        """Names of published weights, besides ``default``."""
        ...

    def knows(self, weights: str) -> bool:
        """Whether ``weights`` is ``default`` or one of these names."""
        ...

    def label(self, weights: str) -> str:
        """The full name of published weights, for files and people."""
        ...

    def published(self, weights: str) -> str:
        """A text that identifies published weights; nothing is downloaded."""
        ...

    def build(self, image_size: int) -> nn.Module:
        """The network with its classifier, randomly initialised."""
        ...

    def state(self, weights: str) -> Path | State:
        """Published weights: the file, downloaded if necessary, or the tensors themselves."""
        ...

    def rename(self, state: State, module: nn.Module) -> State:
        """``state`` with the tensor names of ``module``, if the publisher uses others."""
        ...

    def preprocessing(self, weights: str) -> Preprocessing:
        """The preprocessing with which the weights were trained."""
        ...

    def versions(self) -> str:
        """The versions of the packages that a random initialisation depends on."""
        ...


def unknown_weights(backbone: str, weights: str, names: list[str]) -> UsageError:
    return UsageError(
        f"{weights!r} is neither a file nor weights of {backbone}: known are default, random"
        f"{''.join(f', {name}' for name in names)}."
    )


def sha256_of_file(path: Path) -> str:
    """SHA-256 (hex) of the file's bytes, read in pieces.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror or error}.") from error


def triple(values: Any) -> tuple[float, float, float]:
    """Three numbers, one a channel."""
    red, green, blue = (float(value) for value in values)
    return red, green, blue
