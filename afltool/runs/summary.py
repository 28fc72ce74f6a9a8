"""What a run says of itself in its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files.hdf5 import read_header
from ..heads import options_class
from ..inputs import read_json
from ..options.base import by_name
from ..progress import event, has_listener
from .config import FIELDS, RunConfig
from .folder import RunFolder

PRESET = "preset"  # of a head: its file has the values that it stands for, a summary its name, too


def stage_options(config: RunConfig) -> dict[str, Any]:
    """Every option of the stages that the run has by its flat name, defaults too."""
    parts = ((name, f.name, config.part(f.part)) for name, f in FIELDS.items())
    return {name: plain(getattr(part, own)) for name, own, part in parts if part is not None}


def resolve_options(config: RunConfig, head: Path) -> dict[str, Any]:
    """`stage_options`, and the options of the head, as its first file and `solve` have them."""
    header = read_header(head, "head")
    name = header["name"]
    cls, said = options_class(name), header["options"]
    theirs = by_name(cls, {k: v for k, v in said.items() if k not in cls.GONE}) | config.at_solve()
    chosen = {**stage_options(config), "head": name, "head_seed": theirs.pop("seed", None)}
    chosen |= {name: plain(value) for name, value in theirs.items()}
    return chosen | {k: v for k, v in config.all_head_options().items() if k == PRESET}


def plain(value: Any) -> Any:
    """A value as JSON has it: paths are texts, tuples lists."""
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def digests(folder: RunFolder, first_head: Path, last: int) -> dict[str, str]:
    files = {
        "train": folder.features("train"), "test": folder.features("test"),
        "partition": folder.clients, "first_head": first_head, "total": folder.total(last),
        "head": folder.head(last),
    }  # fmt: skip
    return {name: read_header(path)["digest"] for name, path in files.items()}


def costs(uploads: list[dict[str, Any]], stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that a client sends and gets, over all rounds, and seconds of all stages."""
    files = [one["mean_file"] for one in uploads if "mean_file" in one]
    return {
        **({"file_bytes": sum(files)} if len(files) == len(uploads) else {}),
        "upload_bytes": sum(one["arrays_at_most"] for one in uploads),
        "download_bytes": sum(one.get("download") or 0 for one in uploads),
        "seconds": round(sum(one["seconds"] for one in stages), 3),
    }


def log_done(folder: Path, head: str = RunFolder.FINAL) -> None:
    """The event that the run or baseline in this folder is done, with its summary."""
    if has_listener():
        summary = read_json(folder / RunFolder.SUMMARY, "a summary")
        event("run_done", folder=folder, head=folder / head, summary=summary)
