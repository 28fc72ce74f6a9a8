"""A frozen network that ends where its classifier began."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CorruptFileError, InputError, InvalidDataError, UsageError
from .nodes import check_features, cut_at, cut_classifier, refused
from .sources import Source, State, sha256_of_file, source_of, unknown_weights

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class Backbone:
    """A feature extractor.

    Attributes:
        name: as it was asked for.
        weights: what they are called: ``ResNet18_Weights.IMAGENET1K_V1``, ``random:0``,
            ``file:NAME``.
        weights_digest: SHA-256 (hex) over the state dict without the classifier.
        node: what the features are, such as ``input of fc`` or ``output of layer3, averaged over
            positions``.
        dim: features per image.
        image_size: the side of the images that it was tried with.
        module: in eval mode, without gradients; ``(n, 3, s, s)`` float32 to ``(n, dim)``.
    """

    name: str
    weights: str
    weights_digest: str
    node: str
    dim: int
    image_size: int
    module: nn.Module = field(repr=False)


def load_backbone(
    name: str,
    *,
    weights: str = "default",
    seed: int = 0,
    image_size: int = 224,
    node: str | None = None,
) -> Backbone:
    """Build a backbone, load its weights and cut its classifier off.

    Args:
        name: a classification model of torchvision (``resnet18``), ``efficientnet_lite0``, or
            ``timm:NAME``.
        weights: ``default``, the name of published weights, ``random``, or a file: a state dict
            as .pth (read with ``weights_only``) or .safetensors; a classifier in it is ignored.
        seed: of random weights; the global generator is left alone.
        image_size: side of the square images; vision transformers are built for it.
        node: where the features come out, if not at the input of the classifier; see `cut_at`.

    Raises:
        UsageError: unknown names, an image size that the network refuses, a missing package.
        InputError: weights that are not here and cannot be downloaded, or do not fit.
    """
    import torch

    source = source_of(name)
    kind = kind_of_weights(source, weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = source.build(image_size)
        # Networks refuse sizes by assertions.
        except (AssertionError, ValueError, RuntimeError) as error:
            raise refused(f"{name} cannot be built for", image_size, error) from error
    classifier, dim = _cut(module, name, required=node is None)
    label = f"random:{seed}"
    if kind != "random":
        found = Path(weights) if kind == "file" else source.state(weights)
        state = read_state(found) if isinstance(found, Path) else found
        label = f"file:{Path(weights).name}" if kind == "file" else source.label(weights)
        load_state(module, source.rename(state, module), classifier, f"{name}, weights {weights}")
    module.eval().requires_grad_(False)
    digest = digest_of_state(module)
    if node is None:
        assert classifier is not None
        check_features(module, classifier, dim, name, image_size)
        return Backbone(name, label, digest, f"input of {classifier}", dim, image_size, module)
    cut, what, dim = cut_at(module, node, classifier, name, image_size)
    return Backbone(name, label, digest, what, dim, image_size, cut.eval())


def _cut(module: nn.Module, name: str, required: bool) -> tuple[str | None, int]:
    """`cut_classifier`; a network without one is allowed unless it is ``required``."""
    try:
        return cut_classifier(module, name)
    except UsageError:
        if required:
            raise
        return None, 0


def weights_identity(name: str, weights: str = "default", seed: int = 0) -> str:
    """SHA-256 (hex) that tells these weights from all others, without building the network.

    Of a file: its bytes. Of published weights: the file name, which holds a hash. Of random ones:
    the seed and the versions of what draws them. For cache keys; the digest of the numbers
    themselves is `Backbone.weights_digest`.
    """
    source = source_of(name)
    kind = kind_of_weights(source, weights)
    if kind == "random":
        what = f"random {name} {seed} {source.versions()}"
    elif kind == "file":
        what = f"file {name} {sha256_of_file(Path(weights))}"
    else:
        what = f"published {name} {source.published(weights)}"
    return hashlib.sha256(what.encode()).hexdigest()


def kind_of_weights(source: Source, weights: str) -> str:
    """``random``, ``published`` or ``file``."""
    if weights == "random":
        return "random"
    if source.knows(weights):
        return "published"
    path = Path(weights)
    if path.is_file():
        return "file"
    if path.suffix in (".pth", ".pt", ".bin", ".ckpt", ".safetensors") or len(path.parts) > 1:
        raise InputError(f"expected weights of {source.name} in {path}: there is no such file.")
    raise unknown_weights(source.name, weights, source.weight_names())


# --- weights --------------------------------------------------------------------------------------


def read_state(path: Path) -> State:
    """The tensors of a weights file: plain, or below ``state_dict`` or ``model``.

    Raises:
        InputError, CorruptFileError: unreadable, or more than tensors.
        UsageError: .safetensors without that package.
    """
    if not path.is_file():
        raise InputError(f"expected weights in {path}: there is no such file.")
    try:
        content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    except UsageError:
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


def _read_torch(path: Path) -> Any:
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'.") from error
    return load_file(path)


def _tensors_only(content: Any, path: Path) -> State:
    """Drop the prefix ``module.`` that data-parallel training leaves."""
    import torch

    tensors = isinstance(content, Mapping) and all(
        isinstance(value, torch.Tensor) for value in content.values()
    )
    if not tensors or not content:
        raise InvalidDataError(
            f"{path}: expected a dict of tensors, found {type(content).__name__}."
        )
    if all(key.startswith("module.") for key in content):
        return {key.removeprefix("module."): value for key, value in content.items()}
    return dict(content)


def load_state(module: nn.Module, state: State, classifier: str | None, what: str) -> None:
    """Fill ``module``, whose ``classifier`` is cut off (or it has none), strictly.

    A classifier in ``state`` is ignored, and so is a missing count of batches, which old files
    lack and which changes nothing.

    Raises:
        InvalidDataError: names or shapes differ; the first few are listed.
    """
    own = module.state_dict()
    given = {
        key: value
        for key, value in state.items()
        if key not in (f"{classifier}.weight", f"{classifier}.bias")
    }
    for key, value in own.items():
        if key.endswith("num_batches_tracked"):
            given.setdefault(key, value)
    problems = {
        "missing": [key for key in own if key not in given],
        "unexpected": [key for key in given if key not in own],
        "of another shape": [
            f"{key} ({_shape(given[key])} instead of {_shape(own[key])})"
            for key in own
            if key in given and given[key].shape != own[key].shape
        ],
    }
    if any(problems.values()):
        raise InvalidDataError(
            f"{what}: expected the {len(own)} tensors of this network, found {len(given)}; "
            + "; ".join(
                f"{len(keys)} {kind}, first {', '.join(keys[:3])}"
                for kind, keys in problems.items()
                if keys
            )
            + ". Are they weights of this backbone (and, for a vision transformer, image size)?"
        )
    complete: Any = OrderedDict(given)
    # Says that the names are the current ones, so that no layer converts from older ones.
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
