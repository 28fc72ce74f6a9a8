"""Finds the files that a command line names: files, folders, patterns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import inputs
from ..errors import InputError, UsageError
from . import schema


def expand(paths: Sequence[str | Path]) -> list[Path]:
    """Files from files, folders (their *.h5) and quoted globs.

    Raises `InputError` when an unfinished file matches: without it a sum would lack a client.
    """
    return [file for item in paths for file in _matches(inputs.given_path(item))]


def _matches(path: Path) -> list[Path]:
    if path.is_dir():
        folder, pattern = path, "*.h5"
    elif not path.exists() and any(c in str(path) for c in "*?["):
        folder, pattern = Path(path.anchor or "."), str(path.relative_to(path.anchor))
    else:
        return [path]
    try:
        whole, unfinished = (sorted(folder.glob(pattern + end)) for end in ("", schema.PARTIAL))
    except ValueError as error:
        raise UsageError(f"{folder / pattern} is not a pattern: {error}") from None
    if unfinished:
        raise InputError(
            f"{len(unfinished)} files are unfinished, such as {unfinished[0]}: run the command "
            "that was writing them again"
        )
    if not whole:
        raise InputError(f"no file matches {folder / pattern}: check the path")
    if path.is_dir():  # a folder in it is named by whoever reads it as a file
        return whole
    return [file for match in whole for file in _matches(match)]
