"""What runs have made already: equal steps are carried out once, then linked."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from .. import parallel
from ..errors import CorruptFileError, OutputExistsError
from ..files.atomic import link_or_copy, second_name
from ..files.hdf5 import verify
from ..files.locks import alone
from ..files.recipes import Recipe
from ..stages.runner import Artifact, Files, in_place, make
from ..values.arrays import canonical_json
from .plan import LINK, Step
from .validation import is_linked


class Alone:
    """A run that shares nothing with others."""

    processes = 1  # that carry out runs at the same time and share the memory
    shares = False

    def carry_out(
        self, step: Step, overwrite: bool = False, files: Files | None = None
    ) -> Artifact:
        """The file of a step: linked where it is given or stored, else made."""
        place = step.out
        assert place is not None
        if step.stage.name == LINK:
            given = step.files()["file"]
            assert isinstance(given, Path)
            return Artifact(place) if given == place else _linked(given, step, overwrite)
        if step.stage.stored:
            return Artifact(place) if _is_there(step) else _linked(stored(step), step, overwrite)
        return self.make(step, files or Files(), overwrite)

    def make(self, step: Step, files: Files, overwrite: bool) -> Artifact:
        """Make the file of a step."""
        return step.make(overwrite, files)


class Made(Alone):
    """Results of steps by their recipes, in a folder that any number of processes share.

    The process that comes first makes a result under a lock; for the others it is busy meanwhile,
    then they link it. The recipe is the one that the file of a step has: the same command on the
    same folder finds a linked file up to date.
    """

    shares = True

    def __init__(self, root: Path, processes: int = 1) -> None:
        self.root, self.processes = root, processes

    def make(self, step: Step, files: Files, overwrite: bool) -> Artifact:
        place, o = step.out, step.call(overwrite)
        assert place is not None
        with parallel.using(getattr(o, "threads", None)), files.reading():
            job = step.stage.function.job(o, files)
            if job.targets[-1].path != place:  # a folder
                return in_place(place, make(job, files, overwrite))
            shared = {one.path: self.root / _name(step, one.recipe) for one in job.targets}
            with alone(shared[place], MAKER):
                if not any(map(os.path.lexists, shared)) and all(
                    p.exists() for p in shared.values()
                ):
                    for path, known in shared.items():
                        link_or_copy(known, path, step.stage.writes)
                    return Artifact(place, LINKED)
                made = in_place(place, make(job, files, overwrite))
                for path, known in shared.items():
                    second_name(path, known)
                return made


LINKED = "linked, it was missing"
MAKER = "another process"  # so busy errors call who makes something


def stored(step: Step) -> Path:
    """The features of a step in their store, which has them or gets them."""
    return replace(step, out=None).make().path


def _name(step: Step, recipe: Recipe) -> str:
    """A name for what a step makes."""
    digest = sha256(canonical_json(recipe).encode()).hexdigest()
    return f"{step.stage.name}-{digest[:32]}"


def _linked(given: Path, step: Step, overwrite: bool) -> Artifact:
    """A file from elsewhere under the name that a run has for it; see `is_linked`."""
    assert step.out is not None
    kind = step.stage.writes
    if is_linked(given, step.out, kind, overwrite):
        verify(step.out)  # what follows may be done, and nobody else would read it
        return Artifact(step.out)
    return Artifact(link_or_copy(given, step.out, kind), LINKED)


def _is_there(step: Step) -> bool:
    """Whether features are in their place already, perhaps merged there by a batch system."""
    assert step.out is not None
    with suppress(OutputExistsError, CorruptFileError):
        return step.out.exists() and step.make().path == step.out
    return False
