"""The terms of a session in words, as people approve them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .agreement import Agreement
from .compute import first_head
from .noise import epsilon_of


def in_words(agreed: Agreement) -> str:
    """`lines` as text."""
    return "\n".join(f"{k:>12}  {v}" for k, v in lines(agreed))


def lines(agreed: Agreement) -> Iterator[tuple[str, str]]:
    """What a site approves: every term is in them. Refuses another first head than agreed on."""
    first, names = first_head(agreed), ", ".join(map(repr, agreed.classes))
    yield "members", ", ".join(f"{p.name} ({p.key[:16]})" for p in agreed.members)
    yield "server", f"{agreed.server.name} ({agreed.server.key[:16]})"
    yield "protection", _protection(agreed)
    yield "threshold", f"{agreed.threshold} of {len(agreed.members)} must stay"
    yield "noise", _noise(agreed)
    yield "head", f"{first.name} {_short(agreed.head['options'])} ({agreed.head['digest'][:16]})"
    rounds = [*_scale(agreed), *map(str, first.phases()), *_evaluation(agreed)]
    yield "rounds", f"{len(rounds)} at most: {'; '.join(rounds)}"
    yield "features", _short(agreed.space)
    yield "classes", f"{len(agreed.classes)}: {names}"
    limits = f"{agreed.min_rows} to {agreed.max_rows} a site"
    yield "rows", "no limits: a refusal would tell of them" if agreed.noise else limits
    left = [f"{c.name} ({c.key[:16]}) has left {c.session[:16]}" for c in agreed.consents]
    yield "follows", "; ".join([agreed.follows[:16] or "no other session", *left])
    yield "nonce", agreed.nonce


def _protection(agreed: Agreement) -> str:
    if not agreed.masked:
        return "signed: the server reads the sums of each site"
    return (
        f"masked: nobody opens a sum of fewer than {agreed.threshold} sites, nor do the server "
        f"and {agreed.colluding} members together learn more; {agreed.colluding + 1} may"
    )


def _noise(agreed: Agreement) -> str:
    if agreed.noise is None:
        return "none: sums that are opened are exact"
    o = agreed.noise
    return (
        f"ε = {epsilon_of(agreed):.4g}, δ = {o['delta']:g} for one row (as asked: ε = "
        f"{o['epsilon']:g}), rows of norm {o['clip']:g} at most, {o['colluding']} members may "
        "work with the server"
    )


def _scale(agreed: Agreement) -> Iterator[str]:
    if agreed.scale is not None:
        yield f"scale (sums and sums of squares of features within ±2^{agreed.scale})"


def _evaluation(agreed: Agreement) -> Iterator[str]:
    if o := agreed.evaluation:
        groups = ", ".join(map(repr, o["groups"])) or "none"
        yield (
            f"evaluation of the final head (counts of test rows in bins {o['bins']}, groups: "
            f"{groups}; of each class and group a site has {o['min_cell']} test rows or none)"
        )


def _short(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v!r}" for k, v in facts.items() if v is not None)
