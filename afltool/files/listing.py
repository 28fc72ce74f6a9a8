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
    files: list[Path] = []
    for item in paths:
        files += _expand_one(inputs.given_path(item), set())
    return files


def _expand_one(path: Path, seen: set[tuple[int, int]]) -> list[Path]:
    """The files of one item; a folder that links lead to twice (``seen``) is listed once."""
    if path.is_dir():
        state = path.stat()
        if (state.st_dev, state.st_ino) in seen:
            return []
        seen.add((state.st_dev, state.st_ino))
        folder, pattern = path, "*.h5"
    elif not path.exists() and any(c in str(path) for c in "*?["):
        folder, pattern = Path(path.anchor or "."), str(path.relative_to(path.anchor))
    else:
        return [path]
    whole = _finished(folder, pattern)
    if not whole:
        raise InputError(f"no file matches {folder / pattern}: check the path")
    return [file for match in whole for file in _expand_one(match, seen)]


def _finished(folder: Path, pattern: str) -> list[Path]:
    try:
        whole, unfinished = (sorted(folder.glob(pattern + end)) for end in ("", schema.PARTIAL))
    except ValueError as error:
        raise UsageError(f"{folder / pattern} is not a pattern: {error}") from None
    if unfinished:
        raise InputError(
            f"{len(unfinished)} files are unfinished, such as {unfinished[0]}: run the command "
            "that was writing them again"
        )
    return whole
