"""The folder of a run: the one place that names its files.

A head of several rounds adds the files of round 2 and later with a number: 04-total-2.h5. The
solved head is always in `RunFolder.FINAL`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ..files.atomic import link_or_copy
from ..files.outputs import writer_errors
from ..files.schema import FINAL_HEAD, SUMMARY


class RunFolder:
    """Paths of a run; the constants are the names, for scripts that know the folder as $RUN."""

    OPTIONS = "run.toml"  # the options: `afltool run run.toml -o FOLDER` goes on
    FEATURES = "01-features-{split}.h5"  # hard links into the store, or to given features
    CLIENTS = "02-clients.h5"  # the partition: who owns which row
    FIRST_HEAD = "03-head0.h5"  # the head's options, before anything is gathered
    STATS = "04-stats{suffix}"  # folder, with --keep-clients: one file a client
    HELD_OUT = "04-held-out{suffix}.h5"  # the sum of the held-out clients' statistics
    TOTAL = "04-total{suffix}.h5"  # the sum of the other clients' statistics
    HEAD = "05-head{suffix}.h5"  # the head, one phase further
    FINAL: str = FINAL_HEAD  # the result: a second name of the head after the last round
    METRICS = "06-metrics.json"  # accuracies
    CONFUSION = "06-confusion.csv"
    ROUNDS = "06-rounds.csv"  # what each round took and brought
    SUMMARY = SUMMARY  # what was done, how long it took, how many bytes a client sends

    SLURM = "slurm"  # folder of the job scripts and what passes between jobs
    SUBMIT = "slurm/submit.sh"
    SITE = "slurm/site.json"  # the site's settings
    LOGS = "slurm/log"
    PARTS = "slurm/parts"  # folders of the parts of a step

    #: What a run or its jobs may write, as patterns; a file that it is given may lie there under
    #: the name of its option alone: it is then left as it is.
    _FILES: tuple[str, ...] = (FEATURES, CLIENTS, FIRST_HEAD, STATS + "/*", HELD_OUT, TOTAL, HEAD)
    _FILES += (FINAL, METRICS, CONFUSION, ROUNDS, SUMMARY, SLURM + "/*")
    WRITES = tuple(name.format(split="*", suffix="*") for name in _FILES)
    AT_HOME: ClassVar = {
        "--train-features": FEATURES.format(split="train"),
        "--test-features": FEATURES.format(split="test"),
        "--partition": CLIENTS,
        "--head": FIRST_HEAD,
    }

    def __init__(self, root: str | Path) -> None:
        self.root = root if isinstance(root, Path) else Path(root)
        self.options = self.root / self.OPTIONS
        self.clients = self.root / self.CLIENTS
        self.first_head = self.root / self.FIRST_HEAD

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def features(self, split: str) -> Path:
        return self.root / self.FEATURES.format(split=split)

    def stats(self, number: int) -> Path:
        return self.root / self.STATS.format(suffix=self.suffix(number))

    def held_out(self, number: int) -> Path:
        return self.root / self.HELD_OUT.format(suffix=self.suffix(number))

    def total(self, number: int) -> Path:
        return self.root / self.TOTAL.format(suffix=self.suffix(number))

    def head(self, number: int) -> Path:
        return self.root / self.HEAD.format(suffix=self.suffix(number))

    def remove_rounds(self, last: int) -> None:
        """Remove the heads and sums of all rounds before the ``last`` one."""
        for number in range(1, last):
            for path in (self.head(number), self.total(number), self.held_out(number)):
                with writer_errors(path):
                    path.unlink(missing_ok=True)

    def name_result(self, number: int) -> Path:
        """Make the head of the last round the result, in place of another one."""
        return link_or_copy(self.head(number), self.root / self.FINAL, "head")

    @staticmethod
    def suffix(number: int) -> str:
        """What the names of a round's files end with; nothing for the first round."""
        return "" if number == 1 else f"-{number}"
