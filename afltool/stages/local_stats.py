"""Stage `local-stats`: the rows of each client → that client's statistics, one file a client."""

from __future__ import annotations

from pathlib import Path

from ..files.heads import head_from
from ..memory import NO_CACHE, Cache
from ..options.common import on_cores
from ..options.statistics import LocalStats
from ._gathered import gather


@on_cores
def local_stats(o: LocalStats, *, cache: Cache = NO_CACHE) -> Path:
    """Compute statistics of simulated clients (``partition``) or of one real silo (``client``).

    Writes one file a client into the folder ``out``; with ``sum`` one file, their sum. Clients
    that the partition holds out are then summed into ``held_out`` instead. ``only`` names clients
    ('0-9,12') or a part of them ('I/N'); ``participation`` is the share of them that takes part.
    ``head`` is a head file, or a head's name with ``head_options``. Files that
    are there and were made of the same inputs are kept. ``cache`` among the options: a folder for
    what rows become in a head of many rounds, so that the next round starts there and not from the
    features; otherwise the run's ``cache`` keeps that. Its ``sums``, with ``sum``: where a file is
    of the same rows, whoever owns them, for a head that differs only in γ or in what `solve` may
    change, its arrays are taken over; new files are added. Returns ``out``; of a silo the file in
    that folder.
    """
    found = head_from(o.head, o.head_options, cache)
    return gather(o, o.features, found, o.out, o.head, overwrite=o.overwrite, cache=cache)
