"""Job scripts in their folder: written anew for other options of the site, if they are still ours.

slurm/scripts.json has the SHA-256 of each script that was written. A script that somebody wrote or
changed is not replaced, and not removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import OutputExistsError
from ...files.atomic import as_bytes, write_text
from ...files.headers import mismatch
from ...files.tables import write_json
from ...inputs import MOST_TEXT, distinct_files, read_bytes, read_json
from ..layout import RunFolder

RECORD = Path(RunFolder.SCRIPTS).name
#: What every script says that was written before there was a record.
_SOURCED = b"# Sourced by the scripts of this folder"
_MARKS = (_SOURCED, f"/{RunFolder.COMMON}".encode())


def check_scripts(folder: Path, texts: Mapping[str, str]) -> None:
    """Refuse to write scripts over one that this program did not write as it is.

    Raises:
        OutputExistsError: with the path, and what to do.
    """
    known = _record(folder)
    for name, text in texts.items():
        path = folder / name
        if path.exists() and _bytes(path) != as_bytes(text) and not _is_own(path, known):
            raise OutputExistsError(
                f"{path} exists and is not what this command writes, or was changed since: it "
                "would be lost; move it away, or choose another -o"
            )


def write_scripts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the scripts that `check_scripts` let pass; own ones that are not among them go."""
    known = _record(folder)
    there = [path for path in folder.glob("*.sh") if path.is_file() and _is_own(path, known)]
    digests = {path.name: {_sha(_bytes(path))} for path in there}
    for name, text in texts.items():
        digests.setdefault(name, set()).add(_sha(as_bytes(text)))
    kept = {name: sorted(found) for name, found in digests.items() if name in texts}
    with distinct_files():  # it was read just now
        write_json(kept, folder / RECORD, overwrite=True)  # first: the command may be killed
    for path in there:
        if path.name not in texts:  # of a step that this run no longer has
            path.unlink()
    for name, text in texts.items():
        write_text(text, folder / name, overwrite=True)


def _record(folder: Path) -> dict[str, list[str]] | None:
    """Digests of the scripts that were written here, by name; None where nothing tells."""
    path = folder / RECORD
    if not path.exists():
        return None
    with distinct_files():
        found = read_json(path, "digests of scripts")
    if not isinstance(found, dict) or any(mismatch(one, [str]) for one in found.values()):
        raise OutputExistsError(f"{path} is not what this command writes there: move it away")
    return found


def _is_own(path: Path, known: Mapping[str, list[str]] | None) -> bool:
    data = _bytes(path)
    if known is None:
        return any(mark in data for mark in _MARKS)
    return _sha(data) in known.get(path.name, [])


def _bytes(path: Path) -> bytes:
    with distinct_files():  # looking at an output is not reading it
        return read_bytes(path, MOST_TEXT)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
