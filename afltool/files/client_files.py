"""The disk that a file for each client takes, told before the first is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..heads.base import Shape
from ..progress import log
from ..values.digest import canonical_json
from ..values.escaping import byte_text
from .atomic import free_space, need_space
from .hdf5 import LEAST_BYTES

FILE_BYTES = 16 << 10  # at most, of a client file beside arrays, classes and space


def tell_disk(out: Path, files: int, shapes: Iterable[Shape], header: Mapping[str, Any]) -> None:
    """Say how much disk ``files`` client files take, and refuse when there is less.

    ``shapes``: of the arrays in each; ``header``: of the features, whose space each repeats.
    """
    each = list(shapes)
    beside = FILE_BYTES + len(canonical_json(header))
    size = files * (beside + sum(8 * prod(shape) for shape, _ in each))
    # Integers are stored as narrow as their values allow, perhaps compressed; reals are not.
    least = files * (LEAST_BYTES + sum(8 * prod(s) for s, kind in each if kind == "f"))
    log.info(
        "local-stats: %d files of at most %s, %s in all, into %s",
        files,
        byte_text(size / files),
        byte_text(size),
        out,
    )
    try:
        need_space(out, least, f"{files} client files, at the least")
    except InputError as error:
        raise InputError(f"{error}; or add the clients up at once with --sum") from None
    free = free_space(out)
    if size > free:
        log.warning(
            "the disk of %s has %s free, which may not suffice: files that are finished are "
            "kept, and the same command continues; --sum adds the clients up at once",
            out,
            byte_text(free),
        )
