"""Analytic federated learning over files.

Every stage of the command line is a function of the same name (see `api`), imported when it is
first used, so ``import afltool`` itself costs nothing::

    import afltool

    train = afltool.extract(backbone="resnet18", data="cifar10", split="train")
    clients = afltool.partition(train, "clients.h5", scheme="dirichlet", alpha=0.1, clients=100)
    total = afltool.local_stats(train, "linear", "total.h5", partition=clients, sum=True)
    head = afltool.solve(total, "head.h5")
    test = afltool.extract(backbone="resnet18", data="cifar10", split="test")
    afltool.evaluate(head, test)["top1"]
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import *
    from .estimator import AnalyticClassifier as AnalyticClassifier
    from .lab.baselines.api import *
    from .lab.studies.api import *

__version__ = "0.3.0"

__all__ = [
    "AnalyticClassifier", "RunConfig", "aggregate", "backbone", "baseline", "calibrate", "convert",
    "counts", "diff", "evaluate", "export", "extract", "head", "import_embeddings", "info",
    "local_stats", "merge", "open_features", "partition", "plot", "predict", "read_counts",
    "report", "run", "scale", "solve", "split", "study", "table", "verify",
]  # fmt: skip
#: Where names are that are not in `api`; it knows neither studies nor baselines.
_ELSEWHERE = {
    "AnalyticClassifier": "estimator",
    "baseline": "lab.baselines.api",
    "open_features": "files.features",
    "read_counts": "files.counts",
    **dict.fromkeys(("info", "verify"), "stages.inspect"),
    **dict.fromkeys(("report", "study", "table"), "lab.studies.api"),
}


if not TYPE_CHECKING:  # what is not there is known to be so

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'afltool' has no attribute {name!r}")
        return getattr(import_module(f".{_ELSEWHERE.get(name, 'api')}", __name__), name)


def __dir__() -> list[str]:
    loaded = (k for k, v in globals().items() if isinstance(v, ModuleType) or k[:2] == "__")
    return sorted({*loaded, *__all__})
