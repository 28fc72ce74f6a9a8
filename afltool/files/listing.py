"""Finds the files that a command line names: files, folders, patterns, standard input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from .. import inputs
from ..errors import InputError, UsageError
from ..values.names import file_of_name
from . import schema
from .hdf5 import read_header


def expand(paths: Sequence[str | Path], stdin: IO[str] | None = None) -> list[Path]:
    """Files from files, folders (their *.h5), quoted globs and '-' (a path a line on stdin).

    Raises `InputError` when an unfinished file matches: without it a sum would lack a client.
    """
    files: list[Path] = []
    for item in paths:
        if str(item) == "-":
            files += [] if stdin is None else expand(list(inputs.lines_of(stdin)))
        else:
            files += _expand_one(inputs.given_path(item), set())
    return files


def files_of_clients(items: Sequence[str | Path], others: Sequence[str | Path]) -> list[str | Path]:
    """The same items; one that is no path but the name of a client becomes the client's file.

    It is looked for in the folders among ``others``, and in those of the files among them.

    Raises:
        InputError: no such file, or several.
    """
    given = [Path(other) for other in others if str(other) != "-"]
    folders = dict.fromkeys(p if p.is_dir() else p.parent for p in given if p.exists())
    return [
        item if str(item) == "-" or _is_path(Path(item)) else _file_of(str(item), [*folders])
        for item in items
    ]


def _is_path(item: Path) -> bool:
    return item.exists() or item.suffix == ".h5" or any(c in str(item) for c in "*?[")


def _file_of(client: str, folders: Sequence[Path]) -> Path:
    """The one file in ``folders`` whose only client has this name."""
    files = []
    for folder in folders:
        named = [folder / file_of_name(client)] if client else []
        if client.isdecimal():  # numbered clients: client-007.h5
            named += sorted(folder.glob(f"client-*{client}.h5"))
        files += [p for p in dict.fromkeys(named) if p.is_file() and _only_client(p) == client]
    if len(files) == 1:
        return files[0]
    where = ", ".join(map(str, folders[:5])) or "no folder"
    if files:
        raise InputError(
            f"{len(files)} files are of client {client!r}: {', '.join(map(str, files[:5]))}; give "
            "the path of the one that you mean"
        )
    raise InputError(
        f"{client} is neither a path nor a client whose file is in {where}: "
        f"{inputs.meant(client, 'give the path of its file')}"
    )


def _only_client(path: Path) -> str | None:
    """The name of the client that a file is of; None where it is of several, or no statistics."""
    header = read_header(path)
    names = header["clients"]["names"] if header["kind"] == "statistics" else []
    return str(names[0]) if len(names) == 1 else None


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
        raise InputError(f"no file matches {folder / pattern}: {inputs.meant(folder)}")
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
