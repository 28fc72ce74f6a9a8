"""Analytic federated learning over files.

Every stage of the command line is a function of the same name; they are imported when they are
first used, so ``import afltool`` itself costs nothing::

    import afltool

    train = afltool.extract("resnet18", "cifar10", "train")
    clients = afltool.partition(train, "clients.h5", scheme="dirichlet", alpha=0.1, clients=100)
    total = afltool.local_stats(train, "linear", "total.h5", partition=clients, sum=True)
    head = afltool.solve(total, "head.h5")
    afltool.evaluate(head, afltool.extract("resnet18", "cifar10", "test"))["top1"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .stages.aggregate import aggregate
    from .stages.convert import convert
    from .stages.evaluate import evaluate
    from .stages.extract import extract
    from .stages.head import head
    from .stages.imports import import_embeddings
    from .stages.inspect import check as verify
    from .stages.inspect import info
    from .stages.local_stats import local_stats
    from .stages.merge import merge
    from .stages.partition import partition
    from .stages.pictures import (
        confusion_picture,
        layers_picture,
        partition_picture,
        ridge_path_picture,
        rounds_picture,
    )
    from .stages.pipeline import run
    from .stages.run_config import RunConfig
    from .stages.solve import solve

_WHERE = {
    "extract": "stages.extract:extract",
    "import_embeddings": "stages.imports:import_embeddings",
    "convert": "stages.convert:convert",
    "merge": "stages.merge:merge",
    "partition": "stages.partition:partition",
    "head": "stages.head:head",
    "local_stats": "stages.local_stats:local_stats",
    "aggregate": "stages.aggregate:aggregate",
    "solve": "stages.solve:solve",
    "evaluate": "stages.evaluate:evaluate",
    "run": "stages.pipeline:run",
    "RunConfig": "stages.run_config:RunConfig",
    "info": "stages.inspect:info",
    "verify": "stages.inspect:check",
    "partition_picture": "stages.pictures:partition_picture",
    "confusion_picture": "stages.pictures:confusion_picture",
    "ridge_path_picture": "stages.pictures:ridge_path_picture",
    "layers_picture": "stages.pictures:layers_picture",
    "rounds_picture": "stages.pictures:rounds_picture",
}

__all__ = [
    "RunConfig",
    "aggregate",
    "confusion_picture",
    "convert",
    "evaluate",
    "extract",
    "head",
    "import_embeddings",
    "info",
    "layers_picture",
    "local_stats",
    "merge",
    "partition",
    "partition_picture",
    "ridge_path_picture",
    "rounds_picture",
    "run",
    "solve",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'afltool' has no attribute {name!r}")
    module, attribute = _WHERE[name].split(":")
    return getattr(import_module(f".{module}", __name__), attribute)
