"""The command line: parse, call one stage, print its result on stdout."""

from __future__ import annotations

import os

from ..system import ignore_signals, leave_on_signals


def main() -> None:
    """Entry point of the installed command."""
    leave_on_signals()  # first, because loading the other modules takes most of a short command
    use_given_cores()
    from ._console import BROKEN_PIPE, flush_streams, print_message, setup_streams

    setup_streams()
    from .app import app

    code = 0
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        code = BROKEN_PIPE if isinstance(ended.__context__, BrokenPipeError) else code
    except OSError as error:  # of a help that stdout does not take
        print_message(f"error: cannot write to stdout: {error.strerror}")
        code = 3
    finally:
        ignore_signals()
    raise SystemExit(flush_streams(code))


def use_given_cores() -> None:
    """Give BLAS one thread, and PyTorch those of a job, unless the user has set them.

    Call it before any numerical library loads. `afltool.parallel` has the threads that use BLAS.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # nobody has any; it looks
    if cores := os.environ.get("SLURM_CPUS_PER_TASK"):
        os.environ.setdefault("OMP_NUM_THREADS", cores)
