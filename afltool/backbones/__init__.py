"""Frozen backbones by name: their networks and weights, their preprocessing, their inference.

Importing this package is cheap: torch, torchvision and timm are imported when a function needs
them.
"""

from __future__ import annotations

from .families import preprocessing_for, weights_state
from .inference import (
    PRECISIONS,
    arithmetic,
    default_batch_size,
    fold_batch_norm,
    free_memory,
    infer,
    is_out_of_memory,
    prepare_for_inference,
    resolve_device,
    start_inference,
)
from .listing import nodes_of
from .models import Backbone, check_backbone, load_backbone, weights_identity
from .pooling import AVERAGED
from .preprocessing import Preprocessing, paper_preprocessing
from .slices import over_views

__all__ = [
    "AVERAGED",
    "PRECISIONS",
    "Backbone",
    "Preprocessing",
    "arithmetic",
    "check_backbone",
    "default_batch_size",
    "fold_batch_norm",
    "free_memory",
    "infer",
    "is_out_of_memory",
    "load_backbone",
    "nodes_of",
    "over_views",
    "paper_preprocessing",
    "prepare_for_inference",
    "preprocessing_for",
    "resolve_device",
    "start_inference",
    "weights_identity",
    "weights_state",
]
