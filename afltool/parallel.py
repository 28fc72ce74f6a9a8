"""The cores that work on rows: a pool of threads, each with BLAS of one thread.

No result depends on their number. The borders of blocks are fixed, one thread makes what a block
gives, and what blocks give is taken in the order of the rows, or added as exact integers. A stage
says ``with using(threads)``; whoever works on blocks below it calls `map_threads`.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Any, Generic, TypeVar

from . import memory, system

MOST = 1024
LIMITS = ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS")  # by which a job or a user gives fewer cores
BLAS = "OPENBLAS_NUM_THREADS"
Item = TypeVar("Item")
Found = TypeVar("Found")
Part = TypeVar("Part")

# The pool of the stage under way, and its number of threads, which start when the first work comes.
_pool: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("pool", default=None)


def available() -> int:
    """The cores that this process may use: by affinity, control groups, job and OMP_NUM_THREADS."""
    limits = [system.cores(), system.quota() or MOST]
    given = (os.environ.get(name, "").partition(",")[0] for name in LIMITS)
    return max(1, min([*limits, *(int(n) for n in given if n.isdigit() and int(n) > 0)]))


def threads() -> int:
    """The threads that work on rows here: by `thread_limit`; 1 outside it and in one of them."""
    pool = _pool.get()
    return 1 if pool is None else pool[1]


@contextmanager
def thread_limit(number: int | None = None) -> Iterator[None]:
    """Inside, work on rows is done by so many threads; None: by all cores that are `available`.

    Where threads are in use already, those stay: a run decides for its stages. BLAS has one thread
    inside, since its own threads would change the last bits of sums, and wait more than they work.
    """
    if _pool.get() is not None:
        yield
        return
    number = number or available()
    workers = ThreadPoolExecutor(number, thread_name_prefix="rows")
    token = _pool.set((workers, number))
    try:
        with single_blas_thread():
            yield
    finally:
        _pool.reset(token)
        workers.shutdown(cancel_futures=True)


def map_threads(
    work: Callable[[Item], Found],
    items: Iterable[Item],
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Found]:
    """What ``work`` gives of each item, in order; the items are drawn by the caller's thread.

    As many items are under way as there are threads, and one waits. ``size``: bytes that the work
    on an item takes beside the item; where memory has no room for all threads, fewer work. An error
    in one of them is raised in its place, when those under way have ended. In a thread of the pool
    and outside `thread_limit` all is done at once, where it is asked for.
    """
    pool, number, most = _pool.get(), threads(), 0
    if pool is None or number == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Found]] = deque()
    under_way = number + 1
    try:
        for item in items:
            if (needed := size(item)) > most:  # what is under way has a part of it already
                most, under_way = needed, min(under_way, max(1, memory.available() // needed))
            while len(waiting) >= under_way:
                yield waiting.popleft().result()
            waiting.append(pool[0].submit(copy_context().run, _alone, work, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        wait([one for one in waiting if not one.cancel()])


def _alone(work: Callable[[Item], Found], item: Item) -> Found:
    """The work on an item, in a thread of the pool; what it asks for in turn is done there."""
    _pool.set(None)
    return work(item)


class ThreadLocalPool(Generic[Part]):
    """What threads use in turn, such as a sum that is exact in any order: ``make`` makes one for
    each thread that works; ``made`` has them all in the end."""

    def __init__(self, make: Callable[[], Part]) -> None:
        self._make = make
        self.made: list[Part] = []  # and not in use

    @contextmanager
    def __call__(self) -> Iterator[Part]:
        try:
            part = self.made.pop()
        except IndexError:
            part = self._make()
        yield part
        self.made.append(part)


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Inside, BLAS has one thread; the command has started OpenBLAS so, which costs nothing."""
    import numpy as np

    blas = np.__config__.CONFIG["Build Dependencies"]["blas"]["name"]
    if os.environ.get(BLAS) == "1" and "openblas" in blas:
        yield
        return
    import scipy.linalg  # noqa: F401 - its BLAS is not NumPy's, and is limited once it is loaded

    with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """What numerical libraries the process has; looked up again once ``modules`` were loaded."""
    from threadpoolctl import ThreadpoolController  # it starts ldconfig, and reads long lists

    return ThreadpoolController()


@contextmanager
def one_thread(torch: Any) -> Iterator[None]:
    """Inside, operations of PyTorch, the module ``torch``, have one thread.

    That holds for this thread and those that it starts inside; older ones have their own number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
