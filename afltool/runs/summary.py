"""What a run says of itself in its summary, and what `--keep-rounds last` leaves beside that."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AflError, OutputExistsError
from ..files.hdf5 import read_header, unusable, verify
from ..files.outputs import writer_errors
from ..heads import options_class
from ..inputs import read_json
from ..options.base import fields_of, flag, kinds_of
from ..progress import event, heard, log
from .config import FIELDS, KEEP_LAST, PARTS, RunConfig
from .folder import RunFolder

PRESET = "preset"  # of a head: its file has the values that it stands for, a summary its name, too


def of_stages(config: RunConfig) -> dict[str, Any]:
    """Every option of a run's stages by its flat name, defaults too.

    Those of stages that the run left out (images, where features are given) are absent.
    """
    chosen: dict[str, Any] = {}
    for part, (_, names) in PARTS.items():
        options = config.part(part)
        for field in () if options is None else fields_of(type(options)):
            name = names.get(field, field)
            if name in FIELDS and FIELDS[name].part == part:
                chosen[name] = plain(getattr(options, field))
    return chosen


def resolved(config: RunConfig, head: Path) -> dict[str, Any]:
    """`of_stages`, and the options of the head, as its first file has them and `solve` is told."""
    header = read_header(head, "head")
    gone, name = options_class(header["name"]).GONE, header["name"]
    theirs = {k: v for k, v in header["options"].items() if k not in gone} | config.at_solve()
    chosen = {**of_stages(config), "head": name, "head_seed": theirs.pop("seed", None)}
    chosen |= {name: plain(value) for name, value in theirs.items()}
    return chosen | {k: v for k, v in config.all_head_options().items() if k == PRESET}


def plain(value: Any) -> Any:
    """A value as JSON has it: paths are texts, tuples lists."""
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def digests(folder: RunFolder, first_head: Path, last: int) -> dict[str, str]:
    """Digests of the files of a run by what they are; of several rounds the last total and head."""
    files = {
        "train": folder.features("train"), "test": folder.features("test"),
        "partition": folder.clients, "first_head": first_head, "total": folder.total(last),
        "head": folder.head(last),
    }  # fmt: skip
    return {name: read_header(path)["digest"] for name, path in files.items()}


def costs(uploads: list[dict[str, Any]], stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that a client sends and gets, over all rounds, and seconds of all stages.

    ``file_bytes``: mean size of a client's files, where every round has measured some.
    """
    files = [one["mean_file"] for one in uploads if "mean_file" in one]
    return {
        **({"file_bytes": sum(files)} if len(files) == len(uploads) else {}),
        "upload_bytes": sum(one["arrays_at_most"] for one in uploads),
        "download_bytes": sum(one.get("download") or 0 for one in uploads),
        "seconds": round(sum(one["seconds"] for one in stages), 3),
    }


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
        summary = read_json(folder / RunFolder.SUMMARY, "a summary")
        number = len(summary["bytes_per_client"])
        thinned = summary["options"].get("keep_rounds") == KEEP_LAST and number > 1
        if not thinned or folder.head(1).exists():
            return None
        intact = digests(folder, first_head, number) == summary["digests"]
    except (AflError, OSError, KeyError, TypeError, AttributeError):
        return None
    return number if intact else None


def tell_done(folder: Path, head: str = RunFolder.FINAL) -> None:
    """The event that the run or baseline in this folder is done, with its summary."""
    if heard():
        summary = read_json(folder / RunFolder.SUMMARY, "a summary")
        event("run_done", folder=folder, head=folder / head, summary=summary)


def finished_round(folder: RunFolder, config: RunConfig) -> int | None:
    """The last round of a run of these options that has ended here and kept that one alone.

    Raises `OutputExistsError` where the options are others than those of the run that has ended.
    """
    first_head = config.first_head or folder.first_head
    number = last_round(folder, first_head)
    if number is None:
        return None
    then = read_json(folder / RunFolder.SUMMARY, "a summary")["options"]
    for name, value in resolved(config, first_head).items():
        f = FIELDS.get(name)  # None: an option of the head; files are compared by their digests
        shown = f is None or f.in_result or name == "each_round"
        is_path = f is not None and Path in kinds_of(f.info)
        if shown and not is_path and then.get(name) != value:
            raise OutputExistsError(
                f"{folder.root} holds a finished run that kept only its last round, with "
                f"{flag(name)} {then.get(name)}; found {value}: choose another -o, or --overwrite "
                f"to compute all {number} rounds again"
            )
    if config.here.keep_rounds != KEEP_LAST:
        log.info("%s kept only its last round; --keep-rounds all makes all again", folder.root)
        return None
    for path in (folder.total(number), folder.head(number)):
        try:
            verify(path)
        except (AflError, OSError) as error:
            raise unusable(path, error) from None
    whole = all((folder / name).exists() for name in MEASURED)
    return number if whole else None
