"""The way to `afltool.privacy` from the plain stages: taken only where an option or a header asks.

What privacy needs to be loaded is then loaded; a plain command loads none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.features import Features
from ..files.outputs import KEYS, kind_of_file
from ..files.statistics import Protection
from ..heads.base import Head
from ..options.statistics import ProtectionOptions
from ..values.statistics import Context, Statistics


def protection_of(o: ProtectionOptions, head: object, bound: Head, rows: Features) -> Protection:
    """What is done to the statistics that a site writes."""
    if o.sign is None:  # every other protection needs it
        return Protection()
    from ..privacy.protection import Protected

    return Protected.of(o, o.sign, head, bound, rows)


def ridge_of_noise(total: Statistics, given: Mapping[str, Any]) -> dict[str, float]:
    """The ridge that a total with noise is solved with, unless one is given; {} for any other."""
    if not total.context.noise or "ridge" in given:
        return {}
    from ..privacy.differential import ridge_of

    return {"ridge": ridge_of(total)}


def worth_of_noise(
    path: Path, context: Context, clients: int, arrays: Mapping[str, Any]
) -> dict[str, str]:
    """What the noise of a file is worth, in words; {} without noise.

    Raises:
        CorruptFileError: its header says another ε than its σ gives.
    """
    if not context.noise:
        return {}
    from ..privacy.worth import account_of

    shapes = {name: one["shape"] for name, one in arrays.items()}
    return {"privacy": account_of(path, context, clients, shapes)}


def message(path: Path) -> dict[str, Any]:
    """What a roster, a key or another message says; {} for any other file."""
    try:
        if kind_of_file(path) not in ("JSON", *KEYS):
            return {}
    except OSError:
        return {}
    from ..privacy.messages import describe

    return describe(path)


def certificate(papers: Sequence[Path], files: Sequence[Path]) -> dict[str, Any]:
    """What a certificate of unlearning says, checked against the files that it names."""
    from ._certificate import check_certificate

    return check_certificate(papers, files)
