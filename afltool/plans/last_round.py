"""`--keep-rounds last`: what a finished run of several rounds leaves, and how it is known again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import AflError, OutputExistsError
from ..files.outputs import writer_errors
from ..files.recipes import usable
from ..inputs import distinct_files, read_json
from ..options import flag
from ..progress import log
from .config import FIELDS, KEEP_LAST, RunConfig
from .layout import RunFolder
from .summary import digests, resolved

MEASURED = (RunFolder.METRICS, RunFolder.CONFUSION, RunFolder.ROUNDS)


def remove_rounds(folder: RunFolder, last: int) -> None:
    """Remove the heads and sums of all rounds before the ``last`` one, first those of round 1."""
    for number in range(1, last):
        for path in (folder.head(number), folder.total(number), folder.held_out(number)):
            with writer_errors(path), suppress(FileNotFoundError):
                path.unlink()


def last_round(folder: RunFolder, first_head: Path) -> int | None:
    """The number of the last round, where a finished run has kept the files of that one alone.

    It is None for other folders, and where the files are not those of the summary: then nothing
    tells what the last round was made of, and the run is not finished.
    """
    try:
        with distinct_files():  # looking at an output is not reading it
            found = read_json(folder / RunFolder.SUMMARY, "a summary")
            number = len(found["bytes_per_client"])
            thinned = found["options"].get("keep_rounds") == KEEP_LAST and number > 1
            if not thinned or folder.head(1).exists():
                return None
            intact = digests(folder, first_head, number) == found["digests"]
    except (AflError, OSError, KeyError, TypeError, AttributeError):
        return None
    return number if intact else None


def finished_round(folder: RunFolder, config: RunConfig, first_head: Path) -> int | None:
    """The last round of a run of these options that has ended here and kept that one alone.

    Raises `OutputExistsError` where the options are others than those of the run that has ended.
    """
    number = last_round(folder, first_head)
    if number is None:
        return None
    with distinct_files():
        then = read_json(folder / RunFolder.SUMMARY, "a summary")["options"]
    for name, value in resolved(config, first_head).items():
        if _decides(name) and then.get(name) != value:
            raise OutputExistsError(
                f"{folder.root} holds a finished run that kept only its last round, with "
                f"{flag(name)} {then.get(name)}; found {value}: choose another -o, or --overwrite "
                f"to compute all {number} rounds again"
            )
    if config.here.keep_rounds != KEEP_LAST:
        log.info("%s kept only its last round; --keep-rounds all makes all again", folder.root)
        return None
    for path in (folder.total(number), folder.head(number)):
        usable(path)
    whole = all((folder / name).exists() for name in MEASURED)
    return number if whole else None


def _decides(name: str) -> bool:
    """Whether what a run leaves depends on an option; files are compared by their digests."""
    f = FIELDS.get(name)
    if f is None:
        return True  # an option of the head
    return (f.metadata["in_result"] or name == "each_round") and "Path" not in str(f.type)
