"""What `import` does with a scaling: rows are scaled, and the feature space says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MismatchError, UsageError
from ..files.heads import load_solved_head
from ..heads.scaling import ScalingHead
from ..options.features import ImportOptions
from ..progress import log
from ..sources.embeddings import Embeddings, space_of
from ..values.arrays import F64
from ..values.differences import difference

SHOWN = 40  # features of which the resolution is said one by one


@dataclass(frozen=True)
class Scaled:
    """The scaling of a file, and what becomes of missing values."""

    head: ScalingHead
    missing: str
    bits: int | None

    @classmethod
    def read(cls, path: Path, x: Embeddings, o: ImportOptions) -> Scaled:
        """That of ``path``; refused where it was made of other features."""
        head, header = load_solved_head(path)
        if not isinstance(head, ScalingHead):
            raise UsageError(f"--scale {path} is a {head.name} head; expected a scaling file")
        ours, theirs = header["space"], space_of(x, o.backbone)
        if wrong := difference(ours, theirs, f"in {path}", "in these rows"):
            raise MismatchError(f"the scaling {path} is of other features: {wrong}")
        return cls(head, o.missing, o.bits)

    def space(self) -> dict[str, Any]:
        """What the feature space says of it."""
        more = len(self.head.holes()) if self.missing == "indicator" else 0
        named = {} if self.missing == "refuse" else {"missing": self.missing}
        return {"dim": (self.head.dim or 0) + more, "scaling": self.head.digest(), **named}

    def told(self) -> dict[str, Any]:
        """What the header says of it: ``resolution`` is one step of the fixed point in the units of
        each feature."""
        known = self.head.arrays()
        steps = None if self.bits is None else (known["spread"] * 2.0**-self.bits).tolist()
        return {
            "scaling": {"resolution": steps, "constant": known["constant"].nonzero()[0].tolist()}
        }

    def say(self) -> None:
        """The same in words."""
        found = self.told()["scaling"]
        if same := found["constant"]:
            log.warning("import: %d features are constant: %s", len(same), _listed(same))
        each = [f"{j}: {one:.3g}" for j, one in enumerate(found["resolution"] or ())]
        if each:
            log.info("import: the smallest step that is left of each feature: %s", _listed(each))

    def rows(self, x: F64, first_row: int) -> F64:
        return self.head.scaled(x, self.missing, first_row)


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values[:SHOWN])) + ", … (afltool info)" * (len(values) > SHOWN)
