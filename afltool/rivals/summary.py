"""What a baseline found, as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .runner import Round, Run

ON_TEST = "chosen by the test rows themselves, as the papers do: too good by that choice"


def summarise(method: str, run: Run, facts: dict[str, Any], n: int, clients: int) -> dict[str, Any]:
    """The three accuracies, settings, sums over rounds, and the rounds themselves; by client, too,
    where each has its own head.

    ``n`` test rows; ``clients`` in the partition, of which those without rows take no part.
    """
    rounds = run.state.rounds
    last, alone = rounds[-1], run.by_client()
    return {
        "method": method,
        "top1": last["top1"],
        "n": n,
        "accuracies": accuracies(rounds),
        **({"top1_by_client": alone} if alone else {}),
        "settings": run.settings.as_dict(),
        **facts,
        **run.method.facts,
        "clients": len(run.clients),
        "clients_dealt": clients,
        "rows": int(run.clients.sizes.sum()),
        "upload_bytes": sum(one["upload_bytes"] for one in rounds),
        "download_bytes": sum(one["download_bytes"] for one in rounds),
        "client_seconds": round(sum(one["gather_seconds"] for one in rounds), 3),
        "server_seconds": round(sum(one["solve_seconds"] for one in rounds), 3),
        "rounds": rounds,
    }


def accuracies(rounds: Sequence[Round]) -> dict[str, Any]:
    """Accuracies of the last round, the round best on held-out clients, the best on test rows."""
    measured = [(number, one) for number, one in enumerate(rounds, 1) if "top1" in one]
    last = measured[-1]
    found: dict[str, Any] = {"last_round": _entry(*last)}
    if "held_out_top1" in last[1]:
        best = max(measured, key=lambda pair: (pair[1]["held_out_top1"], -pair[0]))
        found["best_by_held_out_clients"] = _entry(*best)
    best = max(measured, key=lambda pair: (pair[1]["top1"], -pair[0]))
    found["best_on_test_rows"] = {**_entry(*best), "note": ON_TEST}
    return found


def _entry(number: int, one: Round) -> dict[str, Any]:
    keys = ("top1", "top1_max", "top1_spread", "held_out_top1")
    return {"round": number, **{key: one[key] for key in keys if key in one}}
