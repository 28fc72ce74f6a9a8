"""What runs have made already: equal steps are carried out once, then linked."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ..errors import CorruptFileError, OutputExistsError
from ..files.atomic import link_or_copy, second_name
from ..files.hdf5 import verify
from ..files.locks import alone
from ..files.recipes import Recipe
from ..stages.runner import Artifact, Files, make
from ..values.arrays import canonical_json
from .plan import LINK, Step
from .validation import is_linked


class StepCache:
    """Makes the files of steps; those of runs that share a folder ``root`` are made once.

    There results have names by their recipes. The process that comes first makes a result under a
    lock; for the others it is busy meanwhile, then they link it. ``processes``: that carry out runs
    at the same time and share the memory.
    """

    def __init__(self, root: Path | None = None, processes: int = 1) -> None:
        self.root, self.processes = root, processes

    def carry_out(
        self, step: Step, overwrite: bool = False, files: Files | None = None
    ) -> Artifact:
        """The file of a step: linked where it is given, stored or shared, else made."""
        place = step.out
        assert place is not None
        if step.stage.name == LINK:
            given = step.inputs["file"]
            assert isinstance(given, Path)
            return Artifact(place) if given == place else _link(given, step, overwrite)
        if step.stage.stored:
            return (
                Artifact(place)
                if _has_features(step)
                else _link(store_features(step), step, overwrite)
            )
        if self.root is None:
            return step.make(overwrite, files)
        with step.stage.function.opened(step.call(overwrite), files) as job:
            if job.targets[-1].path != place:  # a folder
                return Artifact(place, make(job, overwrite))
            shared = {one.path: self.root / _name(step, one.recipe) for one in job.targets}
            with alone(shared[place]):
                known = all(path.exists() for path in shared.values())
                if known and not any(map(os.path.lexists, shared)):
                    for path, one in shared.items():
                        link_or_copy(one, path, step.stage.writes)
                    return Artifact(place, LINKED)
                made = Artifact(place, make(job, overwrite))
                for path, one in shared.items():
                    second_name(path, one)
                return made


LINKED = "linked, it was missing"


def store_features(step: Step) -> Path:
    """The features of a step in their store, which has them or gets them."""
    return replace(step, out=None).make().path


def _name(step: Step, recipe: Recipe) -> str:
    digest = sha256(canonical_json(recipe).encode()).hexdigest()
    return f"{step.stage.name}-{digest[:32]}"


def _link(given: Path, step: Step, overwrite: bool) -> Artifact:
    """A file from elsewhere under the name that a run has for it; see `is_linked`."""
    assert step.out is not None
    kind = step.stage.writes
    if is_linked(given, step.out, kind, overwrite):
        verify(step.out)  # what follows may be done, and nobody else would read it
        return Artifact(step.out)
    return Artifact(link_or_copy(given, step.out, kind), LINKED)


def _has_features(step: Step) -> bool:
    """Whether features are in their place already, perhaps merged there by a batch system."""
    assert step.out is not None
    with suppress(OutputExistsError, CorruptFileError):
        return step.out.exists() and step.make().path == step.out
    return False
