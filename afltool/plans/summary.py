"""What a run says of itself in its summary: every option that it resolved to, digests, costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..files.hdf5 import read_header
from ..files.headers import versions
from ..values.parsed import text_form
from .config import FIELDS, PARTS, RunConfig
from .layout import RunFolder
from .solve_options import at_solve

PRESET = "preset"  # of a head: its file has the values that it stands for, a summary its name, too


def resolved(
    config: RunConfig, head: Path, late: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Every option of a run by its flat name, defaults too; those of its head as its file has them.

    Options of stages that the run left out (images, where features are given) are absent. ``late``:
    `at_solve`, where it is known.
    """
    found: dict[str, Any] = {}
    for part, (_, names) in PARTS.items():
        options = config.part(part)
        for f in () if options is None else fields(options):
            name = names.get(f.name, f.name)
            if name in FIELDS and f.metadata["in_run"]:
                found[name] = plain(getattr(options, f.name))
    header = read_header(head, "head")
    theirs = {**header["options"], **(at_solve(config, head) if late is None else late)}
    found |= {"head": header["name"], "head_seed": theirs.pop("seed", None)}
    found |= {name: plain(value) for name, value in theirs.items()}
    return found | {k: v for k, v in config.all_head_options().items() if k == PRESET}


def plain(value: Any) -> Any:
    """A value as JSON has it: paths are texts, tuples lists."""
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, Path) else text_form(value)


def digests(folder: RunFolder, first_head: Path, last: int) -> dict[str, str]:
    """Digests of the files of a run by what they are; of several rounds the last total and head."""
    files = {
        "train": (folder.features("train"), "features"),
        "test": (folder.features("test"), "features"),
        "partition": (folder.clients, "partition"),
        "first_head": (first_head, "head"),
        "total": (folder.total(last), "statistics"),
        "head": (folder.head(last), "head"),
    }
    return {name: read_header(path, kind)["digest"] for name, (path, kind) in files.items()}


def costs(uploads: list[dict[str, Any]], stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that a client sends and gets, over all rounds, and seconds of all stages.

    ``file_bytes``: mean size of a client's files, where each client has some.
    """
    files = [one["mean_file"] for one in uploads if "mean_file" in one]
    return {
        **({"file_bytes": sum(files)} if files else {}),
        "upload_bytes": sum(one["arrays_at_most"] for one in uploads),
        "download_bytes": sum(one.get("download") or 0 for one in uploads),
        "seconds": round(sum(one["seconds"] for one in stages), 3),
    }


def made_with(
    config: RunConfig, folder: RunFolder, first_head: Path, last: int, late: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The entries of the summary that say what was run: options, partition, digests, versions."""
    header = read_header(folder.clients, "partition")
    return {
        "options": resolved(config, first_head, late),
        "partition": dict(header["scheme"]),
        "digests": digests(folder, first_head, last),
        "versions": versions(),
    }
