"""Analytic federated learning over files.

Every stage of the command line is a function of the same name, whose options are keywords (see
`keywords`, and __init__.pyi for editors). They are imported when they are first used, so
``import afltool`` itself costs nothing::

    import afltool

    train = afltool.extract("resnet18", "cifar10", "train")
    clients = afltool.partition(train, "clients.h5", scheme="dirichlet", alpha=0.1, clients=100)
    total = afltool.local_stats(train, "linear", "total.h5", partition=clients, sum=True)
    head = afltool.solve(total, "head.h5")
    afltool.evaluate(head, afltool.extract("resnet18", "cifar10", "test"))["top1"]
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.3.0"

_WHERE = {
    "AnalyticClassifier": "estimator:AnalyticClassifier",
    "extract": "stages.extract:extract",
    "backbone": "stages.backbone:backbone",
    "import_embeddings": "stages.imports:import_embeddings",
    "scale": "stages.scale:scale",
    "convert": "stages.convert:convert",
    "split": "stages.split:split",
    "merge": "stages.merge:merge",
    "partition": "stages.partition:partition",
    "head": "stages.head:head",
    "local_stats": "stages.local_stats:local_stats",
    "aggregate": "stages.aggregate:aggregate",
    "solve": "stages.solve:solve",
    "evaluate": "stages.evaluate:evaluate",
    "counts": "stages.counts:counts",
    "read_counts": "files.counts:read_counts",
    "calibrate": "stages.calibrate:calibrate",
    "predict": "stages.predict:predict",
    "export": "stages.export:export",
    "baseline": "rivals.stage:baseline",
    "run": "plans.here:run",
    "RunConfig": "plans.config:RunConfig",
    "study": "papers.execution:study",
    "table": "papers.tables:table",
    "report": "papers.pages:report",
    "info": "stages.inspect:info",
    "verify": "stages.inspect:check",
    "partition_picture": "stages.plot:partition_picture",
    "confusion_picture": "stages.plot:confusion_picture",
    "reliability_picture": "stages.plot:reliability_picture",
    "roc_picture": "stages.plot:roc_picture",
    "coverage_picture": "stages.plot:coverage_picture",
    "ridge_path_picture": "stages.plot:ridge_path_picture",
    "rounds_picture": "stages.plot:rounds_picture",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'afltool' has no attribute {name!r}")
    module, attribute = _WHERE[name].split(":")
    value = getattr(import_module(f".{module}", __name__), attribute)
    if isinstance(value, type):
        return value
    from .keywords import by_keywords

    return by_keywords(value)


def __dir__() -> list[str]:
    loaded = (
        name for name, v in globals().items() if isinstance(v, ModuleType) or name[:2] == "__"
    )
    return sorted({*loaded, *__all__})
