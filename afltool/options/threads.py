"""How many threads work on rows: one option of every command that reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from .fields import Options, option

MOST = 1024
P = ParamSpec("P")
R = TypeVar("R")


def threads_option(in_run: bool = False) -> Any:
    """--threads; ``in_run``: of a whole run, which decides for its stages."""
    text = "threads that work on rows; no result depends on their number"
    return option(
        None,
        text,
        at_least=1,
        at_most=MOST,
        unset="as many as cores may be used",
        in_result=False,
        in_run=in_run,
    )


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(Options):
    """Of every stage that reads rows."""

    threads: int | None = threads_option()


def on_cores(stage: Callable[P, R]) -> Callable[P, R]:
    """A stage that works with the threads of its options; see `afltool.cores`."""

    @wraps(stage)
    def with_threads(*args: P.args, **named: P.kwargs) -> R:
        from .. import cores

        given = [one for one in (*args, *named.values()) if isinstance(one, ThreadOptions)]
        with cores.using(given[0].threads if given else None):
            return stage(*args, **named)

    return with_threads
