"""Who a client is, what is recorded about it, and which clients have rows in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from .digest import Digest


@dataclass(frozen=True, order=True)
class ClientId:
    """A client is known by its name within a partition; a real silo has no partition ('')."""

    name: str
    partition: str = ""

    def __str__(self) -> str:
        return f"{self.name} (partition {self.partition[:12]})" if self.partition else self.name


@dataclass(frozen=True)
class Client:
    """What is recorded about one client: rows, γ (never inside the gram), where the rows lie."""

    rows: int | None  # None: unknown, as under masks
    gamma: float = 0.0
    source: str = ""  # digest of the feature file
    rows_digest: str = ""  # which rows the partition deals, whatever the backbone
    held_out: bool = False
    dealt_to: int = 0  # clients of its partition, held-out ones apart; 0: one of its own, unknown


@lru_cache(maxsize=1 << 14)  # every round has the same clients
def mark(who: ClientId, client: Client) -> str:
    """A short digest of a client and its rows, for head files, which must not say more of them."""
    known = [who.partition, who.name, client.rows, client.source]
    return Digest().json("client", known).hex()[:16]


def sources_of(clients: Mapping[ClientId, Client]) -> dict[str, ClientId]:
    """A client of each feature file that clients with rows come from."""
    return {c.source: who for who, c in clients.items() if c.source and c.rows != 0}


def same_source(
    known: Mapping[str, ClientId], clients: Mapping[ClientId, Client]
) -> tuple[ClientId, ClientId] | None:
    """One of ``known`` (`sources_of`) and one of ``clients`` that have rows in common; or None.

    Two clients of one feature file share rows unless one partition dealt them.
    """
    for who, client in clients.items():
        other = known.get(client.source) if client.rows != 0 else None
        if other is not None and (not who.partition or other.partition != who.partition):
            return other, who
    return None
