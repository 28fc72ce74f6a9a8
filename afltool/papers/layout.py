"""The folder of a study: the one place that names its files.

Each cell is the folder of a run or of a baseline, under the digest of its inputs and options.
"""

from __future__ import annotations

from pathlib import Path

from ..plans.layout import RunFolder


class StudyFolder:
    """Paths of a study."""

    STUDY = "study.json"  # the study as it was given: its tree of options and how it is shown
    CELLS = "cells"
    SHARED = "shared"  # features and partitions that baselines read
    FAILED = "failed.txt"  # in a cell: why it has no result
    BEGUN = "begun.txt"  # in a cell that is under way: how many have begun it, and who does it

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def study(self) -> Path:
        return self.root / self.STUDY

    def cell(self, name: str) -> Path:
        return self.root / self.CELLS / name

    def features(self, split: str, key: str) -> Path:
        return self.root / self.SHARED / f"{split}-{key}.h5"

    def clients(self, key: str) -> Path:
        return self.root / self.SHARED / f"clients-{key}.h5"

    @property
    def jobs(self) -> Path:
        """The job scripts of ``--slurm``, laid out as those of a run."""
        return self.root / RunFolder.SLURM

    @classmethod
    def is_one(cls, root: Path) -> bool:
        """Whether a folder is that of a study."""
        return (root / cls.STUDY).is_file()
