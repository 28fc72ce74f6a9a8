"""The command line: parse, call one stage, print its result on stdout."""

from __future__ import annotations

import os
import signal

from .. import memory


def main() -> None:
    """Entry point of the installed command."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is in the background
        signal.signal(signal.SIGINT, leave)
    use_given_cores()
    memory.keep_freed()
    from . import _summary
    from .app import app

    try:
        app()
    except SystemExit as ended:
        _summary.end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
    finally:
        # What was to be said is said: the interpreter's last steps are not worth a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave(number: int, frame: object) -> None:
    """On Ctrl-C before a command has begun: there is nothing to clean up.

    An exception would end in a traceback while modules load, or be swallowed by one of them.
    """
    os.write(2, b"interrupted before it began\n")
    os._exit(130)


def use_given_cores() -> None:
    """Threads of BLAS and PyTorch: a job's SLURM_CPUS_PER_TASK, unless the user says otherwise.

    To be called before any numerical library loads. Without it they see the cores that the process
    may run on.
    """
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores and "OMP_NUM_THREADS" not in os.environ:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, cores)


def show_progress() -> None:
    """For scripts: messages and progress on stderr and clean stops, as the command has them."""
    from ._console import set_up

    set_up(quiet=False, verbose=False)
