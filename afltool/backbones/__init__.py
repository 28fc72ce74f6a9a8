"""Frozen backbones by name: what they are, how images are prepared for them, how they run.

Importing this package is cheap: torch, torchvision and timm are imported when a function needs
them.
"""

from __future__ import annotations

from .inference import (
    PRECISIONS,
    default_batch_size,
    fold_batch_norm,
    infer,
    prepare_for_inference,
    resolve_device,
)
from .models import Backbone, load_backbone, weights_identity
from .preprocessing import Preprocessing, paper_preprocessing, preprocessing_for
from .sources import backbone_names

__all__ = [
    "PRECISIONS",
    "Backbone",
    "Preprocessing",
    "backbone_names",
    "default_batch_size",
    "fold_batch_norm",
    "infer",
    "load_backbone",
    "paper_preprocessing",
    "prepare_for_inference",
    "preprocessing_for",
    "resolve_device",
    "weights_identity",
]
