"""A session in words: its terms, as people approve them, and whom it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .agreement import Agreement
from .compute import first_head
from .keys import name_of
from .noise import epsilon_of
from .place import Place

Step = tuple[str, int, list[str]]  # a kind of message, its number, and who sends it
SAID = {"key": "beginning", "done": "end"}


def in_words(agreed: Agreement) -> str:
    """`lines` as text."""
    return "\n".join(f"{k:>12}  {v}" for k, v in lines(agreed).items())


def lines(agreed: Agreement) -> dict[str, str]:
    """What a site approves: every term is in them. Refuses another first head than agreed on."""
    o, first, server = agreed, first_head(agreed), agreed.server
    rounds, rows = [*map(str, first.phases())], f"{o.min_rows} to {o.max_rows} a site"
    protection = "signed: the server reads the sums of each site"
    noise, follows = "none: sums that are opened are exact", "no other session"
    if o.scale is not None:
        reach = f"features within ±2^{o.scale}"
        rounds.insert(0, f"scale (sums and sums of squares of {reach})")
    if e := o.evaluation:
        groups = ", ".join(map(repr, e.groups)) or "none"
        counts = f"counts of test rows in bins {e.bins}, groups: {groups}"
        least = f"of each class and group a site has {e.min_cell} test rows or none"
        rounds.append(f"evaluation of the final head ({counts}; {least})")
    if o.masked:
        protection = (
            f"masked: nobody opens a sum of fewer than {o.threshold} sites, nor do the server "
            f"and {o.colluding} members together learn more; {o.colluding + 1} may"
        )
    if n := o.noise:
        rows = "no limits: a refusal would tell of them"
        noise = (
            f"ε = {epsilon_of(o, n):.4g}, δ = {n.delta:g} for one row (as asked: ε = "
            f"{n.epsilon:g}), rows of norm {n.clip:g} at most, {n.colluding} members may "
            "work with the server"
        )
    if o.follows:
        follows = f"{o.follows[:16]}: with both sums those of a site that is new here are known"
    left = [f"{c.name} ({c.key[:16]}) has left {c.session[:16]}" for c in o.consents]
    return {
        "members": ", ".join(f"{p.name} ({p.key[:16]})" for p in o.members),
        "server": f"{server.name} ({server.key[:16]})",
        "protection": protection,
        "threshold": f"{o.threshold} of {len(o.members)} must stay",
        "noise": noise,
        "head": f"{first.name} {_short(o.head['options'])} ({o.head['digest'][:16]})",
        "rounds": f"{len(rounds)} at most: {'; '.join(rounds)}",
        "features": _short(o.space),
        "classes": f"{len(o.classes)}: {', '.join(map(repr, o.classes))}",
        "rows": rows,
        "follows": "; ".join([follows, *left]),
        "nonce": o.nonce,
    }


def _short(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v!r}" for k, v in facts.items() if v is not None)


# ---------------------------------------------------------------- where a session is


def status(place: Place, agreed: Agreement) -> dict[str, Any]:
    """What a session waits for, as the files in its place tell; of nobody at the end.

    It needs no key and proves nothing: who may write into the place can make it say anything.
    """
    rounds = len(first_head(agreed).phases())
    rounds += (agreed.scale is not None) + (agreed.evaluation is not None)
    number, kind, late = _late(place, agreed, rounds)
    at = f"round {number} of {rounds} at most" if number else "roll-call"
    text = f"{at}: waiting for the {SAID.get(kind, kind)} of {', '.join(late)}"
    if not kind:
        text = f"round {number} of {rounds}: solved"
    return {"session": agreed.digest, "round": number, "waiting_for": late, "text": text}


def _late(place: Place, agreed: Agreement, rounds: int) -> tuple[int, str, list[str]]:
    """The round, and which message of whom is the next one; '' at the end."""

    def late(kind: str, number: int, who: list[str]) -> list[str]:
        return [name for name in who if not place.size(name_of(kind, number, name))]

    names, server = [p.name for p in agreed.members], [agreed.server.name]
    closed = next((r for r in range(rounds + 1) if late("close", r, server)), rounds + 1) - 1
    steps: list[Step] = [("key", 1, server), ("hello", 0, names), ("close", 0, server)]
    if closed >= 0:
        gone = late("sums" if closed else "hello", closed, names)
        inside = [name for name in names if name not in gone]
        answers: list[Step] = [("shares", closed, inside)] if closed and agreed.masked else []
        head: list[Step] = [("head", closed + 1, server)] if closed else []
        steps = [*answers, *head, ("sums", closed + 1, inside), ("close", closed + 1, server)]
    if closed > 0 and not late("done", closed + 1, server):
        steps = [("done", closed + 1, names)]
    found = closed, "", list[str]()
    for kind, number, who in reversed(steps):  # the last one that somebody has begun
        missing = late(kind, number, who)
        enough = kind == "shares" and len(who) - len(missing) >= agreed.threshold
        if missing and not enough:
            found = number - (kind in ("head", "done")), kind, missing
        if len(missing) < len(who):
            break
    return found
