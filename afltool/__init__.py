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
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .estimator import AnalyticClassifier as AnalyticClassifier
    from .papers.execution import study as study
    from .papers.pages import report as report
    from .papers.tables import table as table
    from .plans.config import RunConfig as RunConfig
    from .plans.here import run as run
    from .rivals.stage import baseline as baseline
    from .stages.aggregate import aggregate as aggregate
    from .stages.convert import convert as convert
    from .stages.evaluate import evaluate as evaluate
    from .stages.export import export as export
    from .stages.extract import extract as extract
    from .stages.head import head as head
    from .stages.imports import import_embeddings as import_embeddings
    from .stages.inspect import check
    from .stages.inspect import info as info
    from .stages.keys import keys as keys
    from .stages.keys import lock_key as lock_key
    from .stages.keys import roster as roster
    from .stages.local_stats import local_stats as local_stats
    from .stages.masks import mask_forget as mask_forget
    from .stages.masks import mask_offer as mask_offer
    from .stages.masks import mask_reveal as mask_reveal
    from .stages.merge import merge as merge
    from .stages.partition import partition as partition
    from .stages.plot import confusion_picture as confusion_picture
    from .stages.plot import partition_picture as partition_picture
    from .stages.plot import reliability_picture as reliability_picture
    from .stages.plot import ridge_path_picture as ridge_path_picture
    from .stages.plot import roc_picture as roc_picture
    from .stages.plot import rounds_picture as rounds_picture
    from .stages.predict import predict as predict
    from .stages.solve import solve as solve
    from .stages.split import split as split

    verify = check

_WHERE = {
    "AnalyticClassifier": "estimator:AnalyticClassifier",
    "extract": "stages.extract:extract",
    "import_embeddings": "stages.imports:import_embeddings",
    "convert": "stages.convert:convert",
    "split": "stages.split:split",
    "merge": "stages.merge:merge",
    "partition": "stages.partition:partition",
    "head": "stages.head:head",
    "local_stats": "stages.local_stats:local_stats",
    "aggregate": "stages.aggregate:aggregate",
    "keys": "stages.keys:keys",
    "lock_key": "stages.keys:lock_key",
    "roster": "stages.keys:roster",
    "mask_offer": "stages.masks:mask_offer",
    "mask_reveal": "stages.masks:mask_reveal",
    "mask_forget": "stages.masks:mask_forget",
    "solve": "stages.solve:solve",
    "evaluate": "stages.evaluate:evaluate",
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
    "ridge_path_picture": "stages.plot:ridge_path_picture",
    "rounds_picture": "stages.plot:rounds_picture",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'afltool' has no attribute {name!r}")
    module, attribute = _WHERE[name].split(":")
    found = getattr(import_module(f".{module}", __name__), attribute)
    return found if isinstance(found, type) else _guarded(found)


def __dir__() -> list[str]:
    loaded = (
        name for name, v in globals().items() if isinstance(v, ModuleType) or name[:2] == "__"
    )
    return sorted({*loaded, *__all__})


def _guarded(stage: Any) -> Any:
    """The stage as a command runs it: it does not write a file that it reads."""
    from functools import wraps

    from .inputs import distinct_files as distinct_files
    from .options.files import of_call as of_call
    from .options.files import refuse_shared as refuse_shared

    @wraps(stage)
    def guarded(*args: Any, **options: Any) -> Any:
        with distinct_files():
            refuse_shared(of_call(stage, args, options))
            return stage(*args, **options)

    return guarded
