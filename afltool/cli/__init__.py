"""The command line: parse, call one stage, print its result on stdout."""

from __future__ import annotations

import os


def main() -> None:
    """Entry point of the installed command."""
    # Before any numerical library loads: a batch job has fewer cores than its machine.
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, cores)
    from .app import app

    app()


def show_progress() -> None:
    """For scripts: messages and progress on stderr and clean stops, as the command has them."""
    from ._console import set_up

    set_up(quiet=False, verbose=False)
