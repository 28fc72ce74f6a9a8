"""What a run's folder holds: each file done, missing, unfinished, damaged or stale, and why.

Every step is asked which recipes its files have now, as `run` asks it; headers are compared. What
comes after a file that is not done is stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AflError
from ..files.hdf5 import read_header
from ..files.outputs import partial_path
from ..files.recipes import Recipe, Target, state
from ..inputs import read_json
from ..memory import MemoryBudget
from ..progress import quiet
from ..stages.runner import Files
from ..values.names import Phase
from .config import RunConfig
from .folder import RunFolder
from .plan import LINK, Step, next_steps
from .validation import serves

KEPT_BYTES = 1 << 28  # of heads and partitions that several steps are asked about


@dataclass(frozen=True)
class Part:
    """A file of the run: done, missing, unfinished, damaged or stale; and why."""

    name: str
    state: str
    why: str = ""


class Parts:
    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self.files = Files(MemoryBudget(KEPT_BYTES))
        self.headers: dict[Path, Mapping[str, Any]] = {}  # of files that are done

    def all(self) -> Iterator[Part]:
        for steps in next_steps(self.config, self.folder, self.phase, self.holds_clients_out):
            for step in steps:
                if step.out is None or step.out.suffix:  # else a folder, whose files the total has
                    yield from self.of(step)

    def phase(self, head: Path) -> Phase | None:
        found = self.headers.get(head, {}).get("phase")
        return None if found is None else Phase(found)

    def holds_clients_out(self, _: RunConfig) -> bool:
        return bool(self.headers.get(self.folder.clients, {}).get("held_out"))

    def of(self, step: Step) -> Iterator[Part]:
        inputs = () if step.stage.name == LINK else step.paths()
        waits = next((p for p in inputs if p not in self.headers and p.suffix == ".h5"), None)
        recipes: Mapping[Path, Recipe] | str = {}
        if waits is not None:
            recipes = f"{self.name(waits)}, which it was made of, is not done"
        elif step.stage.writes:
            recipes = self.recipes(step)
        for path in step.results():
            look = self.look if step.stage.writes else self.metrics
            yield look(path, step, recipes)

    def recipes(self, step: Step) -> Mapping[Path, Recipe] | str:
        """The recipes of the files of a step by their paths; or why it cannot be carried out."""
        if step.stage.name == LINK or step.stage.stored:
            return {}
        try:
            if step.out == self.folder.first_head and serves(self.config, step.out):
                return {}  # what was gathered for it is
            with quiet(), self.files.reading() as files:
                job = step.stage.function.job(step.call(), files)
        except AflError as error:
            return str(error)
        return {target.path: target.recipe for target in job.targets}

    def name(self, path: Path) -> str:
        """A file as people see it: by its name in the folder, or where it is."""
        return path.name if path.parent == self.folder.root else str(path)

    def look(self, path: Path, step: Step, recipes: Mapping[Path, Recipe] | str) -> Part:
        name, begun = self.name(path), partial_path(path)
        if not path.exists() and begun.exists():
            return Part(name, "unfinished", f"{begun.name} is not finished")
        if not path.exists():
            return Part(name, "missing")
        try:
            header = read_header(path, step.stage.writes)
        except AflError as error:
            return Part(name, "damaged", str(error))
        if isinstance(recipes, str):
            return Part(name, "stale", recipes)
        if path in recipes and (found := state(Target(path, recipes[path]))).word != "done":
            return Part(name, found.word, found.reason)
        self.headers[path] = header
        return Part(name, "done", header["digest"])

    def metrics(self, path: Path, step: Step, waits: object) -> Part:
        """The metrics, which have no recipe: by the digests of the head and of the features."""
        if not path.exists():
            return Part(path.name, "missing")
        of = {role: one for role, one in step.inputs.items() if role in ("head", "features")}
        try:
            values = read_json(path, "the metrics")
            measured = {role: values[role]["digest"] for role in of}
            share = float(values["top1"])
        except (AflError, ValueError, KeyError, TypeError, AttributeError):
            return Part(path.name, "damaged", "it is not what evaluate writes")
        if waits:
            return Part(path.name, "stale", str(waits))
        for role, one in of.items():
            if isinstance(one, Path) and self.headers[one]["digest"] != measured[role]:
                return Part(path.name, "stale", f"of another file than {self.name(one)}")
        return Part(path.name, "done", f"top-1 {share:.2%}")
