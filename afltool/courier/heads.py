"""A head as its header and its arrays, each by digest: only those travel that are not there yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError
from ..files.arrays import damage_as_error
from ..files.hdf5 import read_file, write_file
from ..files.heads import load_head
from ..values.arrays import Array
from ..values.digest import canonical_json
from .letters import Letters, Parcel

HEADER = "header"


def parcels(path: Path) -> list[Parcel]:
    """What a head file is sent as; its arrays are in memory meanwhile."""
    header, arrays = read_file(path, "head")
    del header["kind"]
    text = np.frombuffer(canonical_json(header).encode(), np.uint8)
    return [_parcel(HEADER, text), *(_parcel(name, arrays[name]) for name in sorted(arrays))]


def _parcel(name: str, array: Array) -> Parcel:
    data = np.ascontiguousarray(array)
    about = {"name": name, "sha256": _sha(data), "bytes": data.nbytes}
    shape = {"dtype": data.dtype.str, "shape": list(data.shape)}
    return Parcel({**about, **shape}, data.tobytes())


def _sha(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def receive(
    letters: Letters, entries: list[dict[str, Any]], sender: str, path: Path, earlier: Path | None
) -> bool:
    """Put a head file together; False where something of it has not come whole yet.

    ``earlier``: a head that is there; what it has is not fetched.
    """
    have = {} if earlier is None else read_file(earlier, "head")[1]
    known = {_sha(array): array for array in have.values()}
    try:
        with damage_as_error(path):
            found = {one["name"]: _array(letters, one, sender, known) for one in entries}
            header = json.loads(found.pop(HEADER).tobytes())
    except CorruptFileError as error:
        letters.say_once(str(error))
        return False
    write_file(path, "head", header, found)
    load_head(path)
    return True


def _array(
    letters: Letters, entry: Mapping[str, Any], sender: str, known: Mapping[str, Array]
) -> Array:
    if entry["sha256"] in known:
        return known[entry["sha256"]]
    data = b"".join(letters.data(entry, sender))
    return np.frombuffer(data, entry["dtype"]).reshape(entry["shape"])
