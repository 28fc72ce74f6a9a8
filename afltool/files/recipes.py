"""Recipes: what made a file, and whether an existing file is intact and up to date."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import inputs
from ..errors import AflError, OutputExistsError
from ..progress import event
from ..values.digest import canonical_json
from ..values.json_text import difference
from . import hdf5, schema
from .outputs import check_output

# Who reads a file of each kind as a whole; loaded when one is checked, with SciPy some of them.
READERS = {
    "features": ("features", "verify_features"),
    "partition": ("partitions", "load_partition"),
    "statistics": ("statistics", "load_statistics"),
    "masked": ("masked", "load_masked"),
    "head": ("heads", "load_head"),
    "checkpoint": ("checkpoints", "load_checkpoint"),
    "backbone": ("backbones", "load_frozen"),
}


def recipe(stage: str, options: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a file: equal recipes make equal files. Inputs are given by digest."""
    return {"stage": stage, "options": dict(options), "inputs": dict(inputs)}


def up_to_date(path: Path, wanted: Mapping[str, Any], overwrite: bool = False) -> bool:
    """Whether ``path`` exists, is intact and was made by an equal recipe.

    Raises `OutputExistsError` for any other existing file, unless ``overwrite``.
    """
    if not os.path.lexists(path) or overwrite or path.is_dir():  # a folder is refused there
        check_output(path, schema.KIND_OF_STAGE.get(wanted["stage"]))
        return False
    header = usable(path)
    made_by = _filled(header, wanted)
    if canonical_json(made_by) == canonical_json(wanted):
        event("file_kept", path=path, kind=header["kind"])
        return True
    raise OutputExistsError(
        f"{path} exists and was made differently: {_what_differs(made_by, wanted)}; "
        "choose another -o, or use --overwrite"
    )


def _filled(header: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a file; what older versions left out of it is read from its other fields.

    They did not name the space and the classes of the features among the inputs. The header has
    those of the file itself, which are the same; of a converted file it has the number format that
    was converted. Nor did they name the clients that a head remembers: those are taken for equal.
    """
    made_by = header["recipe"]
    own = header.get("context", header)
    before = header["source"]["converted_from"] if made_by["stage"] == "convert" else {}
    space = {k: before.get(k, v) for k, v in (own.get("space") or {}).items()}
    clients = wanted["inputs"].get("clients")
    known = {"space": space, "classes": own.get("classes"), "clients": clients}
    absent = {k: v for k, v in known.items() if k in wanted["inputs"] and v is not None}
    return {**made_by, "inputs": {**absent, **made_by["inputs"]}}


def verify(path: Path) -> dict[str, Any]:
    """Read everything in a file and compare its digest; the header.

    Raises `CorruptFileError` when anything does not hold.
    """
    header = hdf5.read_header(path)
    module, reader = READERS[header["kind"]]
    getattr(import_module(f".{module}", __package__), reader)(path)
    hdf5.check_unchanged(path, hdf5.read_header(path), hdf5.fingerprint(header))
    return header


def usable(path: Path) -> Mapping[str, Any]:
    """The header of an output that exists, after every byte of it was checked.

    Raises `OutputExistsError` for a file that is damaged or none of ours.
    """
    try:
        with inputs.distinct_files():  # looking at an output is not reading it
            return verify(path)
    except (AflError, OSError) as error:
        raise OutputExistsError(
            f"{path} exists and is not usable ({error}); remove it or use --overwrite"
        ) from None


def _what_differs(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    then, now = (json.loads(canonical_json(one)) for one in (theirs, ours))
    return difference(then, now, "in the file", "now")
