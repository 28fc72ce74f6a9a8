"""The stages as programs call them: ``afltool.solve("total.h5", "head.h5", threads=2)``.

A function takes what the class of its options has: files first, options by their names, a text for
a path. Types and names are known to editors and type checkers. A wrong name is a `TypeError`, a
wrong value a `UsageError`. Options of a head are ``head_options={"ridge": 1.0}``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .options import evaluation, features, look, statistics
from .options import partition as partitions
from .options.base import make_signature
from .runs.config import RunConfig as RunConfig

if TYPE_CHECKING:
    from .estimator import AnalyticClassifier as AnalyticClassifier
    from .files.counts import read_counts as read_counts
    from .files.features import open_features as open_features
    from .stages.inspect import info as info
    from .stages.inspect import verify as verify

P = ParamSpec("P")
R = TypeVar("R")


def stage_function(make: Callable[P, Any], returns: type[R]) -> Callable[P, R]:
    """The function of a class of options, `Options.STAGE`, which takes an object of it."""
    cls: Any = make
    module, _, name = cls.STAGE.partition(":")

    @wraps(make, assigned=("__doc__",), updated=())
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        stage = getattr(import_module(f".{module}", __package__), name)
        made: R = stage(make(*args, **kwargs))
        return made

    function.__name__ = function.__qualname__ = name
    vars(function)["__signature__"] = make_signature(cls).replace(return_annotation=returns)
    return function


extract = stage_function(features.ExtractOptions, Path)
backbone = stage_function(features.Backbone, Path)
import_embeddings = stage_function(features.Import, Path)
scale = stage_function(features.Scale, Path)
convert = stage_function(features.Convert, Path)
split = stage_function(features.Split, tuple[Path, Path])
merge = stage_function(features.Merge, Path)
partition = stage_function(partitions.Partition, Path)
head = stage_function(statistics.NewHead, Path)
local_stats = stage_function(statistics.LocalStats, Path)
aggregate = stage_function(statistics.Aggregate, Path)
solve = stage_function(statistics.Solve, Path)
evaluate = stage_function(evaluation.Evaluate, dict[str, Any])
counts = stage_function(evaluation.Counts, Path)
calibrate = stage_function(evaluation.Calibrate, Path)
predict = stage_function(evaluation.Predict, dict[str, Any])
export = stage_function(evaluation.Export, Path)
plot = stage_function(look.Picture, Path)
diff = stage_function(look.Diff, dict[str, Any])


def run(config: RunConfig, out: str | Path, *, overwrite: bool = False) -> Path:
    """Carry out every stage of a run in the folder ``out``; what is done and valid is kept."""
    from .runs.local import run as stage

    return stage(config, Path(out), overwrite=overwrite)
