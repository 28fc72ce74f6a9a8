"""What a federation agrees on once, for all phases of a head: one file, one digest to compare.

Round r of a session is the phase r of its list. Its roster is made of the session and of the head
that the round has, so every step of a round takes a session where it takes a roster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import MismatchError
from ..files.schema import Open, described, mismatch, whole
from ..heads import make_head
from ..inputs import parsed_json
from ..options.privacy import MODES, PLAIN
from ..values.bins import usual_bins
from ..values.names import COUNTS
from ..values.text import difference
from . import messages as msg
from . import roster, terms
from .identity import Member
from .roster import Roster, Series

VERSION = 1
version = described("1, which this afltool reads", lambda v: v == VERSION)
mode = described("plain, signed or masked", lambda v: v in (PLAIN, *MODES))
PATTERN = {
    **roster.PATTERN,
    "version": version,
    "protection": {"mode": mode, "noise": (terms.BUDGET, None)},
    "head": {**roster.HEAD, "options": Open({})},
    "phases": [str],
    "min_rows": whole,
}

EVALUATED = {
    "name": str,
    "options": Open({}),
    "digest": msg.SHA256,
    "probabilities": bool,
    "bins": str,
}


@dataclass(frozen=True)
class Session:
    """``agreed``: the roster of its first phase, with the random number of the session; it is used
    for nothing itself. ``options``: those of the head, real numbers as texts. ``phases``: all that
    the head may need, in order."""

    agreed: Roster
    options: Mapping[str, Any]
    phases: tuple[str, ...]

    @classmethod
    def new(
        cls, agreed: Roster, options: Mapping[str, Any], phases: Sequence[str], min_rows: int = 0
    ) -> Session:
        """A session of the head with these options, whose next phases are ``phases``."""
        least = min(terms.most_rows(len(agreed.members), phase) for phase in phases)
        fitting = replace(agreed, max_rows=min(agreed.max_rows, least), min_rows=min_rows)
        return cls(fitting, msg.without_reals(options), tuple(phases))

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.agreed.as_dict(),
            "kind": "session",
            "version": VERSION,
            "head": {**self.agreed.head, "options": dict(self.options)},
            "phases": list(self.phases),
            "min_rows": self.agreed.min_rows,
        }

    @cached_property
    def digest(self) -> str:
        """What people compare, once."""
        return msg.digest_of(self.as_dict())

    @property
    def server(self) -> Member:
        assert self.agreed.server is not None  # every session has one
        return self.agreed.server

    @property
    def people(self) -> dict[str, Member]:
        """Everybody who signs, by name."""
        return {one.name: one for one in (*self.agreed.members, self.server)}

    @property
    def evaluated(self) -> bool:
        """Whether the head, once it is solved, is evaluated by counts: the last phase."""
        return self.phases[-1] == COUNTS != self.agreed.head["phase"]

    def number(self, phase: str) -> int:
        """Which round a phase is, from 1; `MismatchError` for one that was not agreed on."""
        if phase not in self.phases:
            raise MismatchError(
                f"the phase {phase!r} is not in the session {self.agreed.path}, which has "
                f"{len(self.phases)}: {', '.join(self.phases[:4])} …"
            )
        return self.phases.index(phase) + 1

    def round(self, head: Mapping[str, Any]) -> Roster:
        """The roster of the round of a head: a `heads.base.binding`, or that of a file's header.

        Raises `MismatchError` for another head than the session's: name, options, and of the first
        round the digest.
        """
        path, number, facts = self.agreed.path, self.number(head["phase"]), head
        ours: dict[str, Any] = {"name": self.agreed.head["name"], "options": self.options}
        if self.evaluated and head["phase"] == COUNTS:
            facts, usual = _evaluated(head)
            ours = {**ours, "bins": usual, "groups": []}
            if self.agreed.terms.noise and "options" in facts:  # solve took a ridge that fits it
                facts["options"]["ridge"] = self.options["ridge"]
        terms = {key: msg.without_reals(facts.get(key, ours[key])) for key in ours}
        if number == 1:
            ours["digest"], terms["digest"] = self.agreed.head["digest"], head["digest"]
        if wrong := difference(ours, terms, f"in {path}", "here"):
            raise MismatchError(f"the head does not fit the session {path}: {wrong}")
        series = Series(self.digest, number, len(self.phases))
        return replace(self.agreed, head={k: head[k] for k in roster.HEAD}, series=series)

    def check(self) -> None:
        """Refuse a session that protects no member, or whose sums might not fit into int64."""
        self.agreed.check()
        for phase in self.phases:
            terms.check_rows(len(self.agreed.members), self.agreed.max_rows, phase)


def _evaluated(head: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What a round of evaluation says of its solved head, groups and bins; the head's usual bins.

    Of a request nothing is said.
    """
    if "options" not in head:
        return {}, ""
    where, options = "a round of evaluation", head["options"]
    heads = parsed_json(str(options.get("heads")), where)
    if (wrong := mismatch(heads, [EVALUATED])) or len(heads) != 1:
        raise MismatchError(f"{where} in a session is of its one head: {wrong or len(heads)}")
    (one,) = heads
    own = {name: value for name, value in one["options"].items() if name != "gamma"}
    usual = usual_bins(make_head(one["name"], one["options"]).log_probabilities)
    return {**one, "options": own, "groups": options.get("groups")}, usual


def load(path: Path) -> Session:
    """Read a session and check what it claims."""
    body = msg.read(path, "session", PATTERN).body
    agreed = replace(roster.of_body(body, path), min_rows=body["min_rows"])
    session = Session(agreed, body["head"]["options"], tuple(body["phases"]))
    session.number(agreed.head["phase"])
    session.check()
    return session


def is_session(path: Path) -> bool:
    """Whether a message is a session; what it is else, is found when it is read."""
    value = msg.parse(path)
    return not mismatch(value, msg.SEALED) and value["body"].get("kind") == "session"


def roster_of(path: Path, head: Mapping[str, Any] | None = None) -> Roster:
    """The roster in a file; of a session that of the round of ``head``, by default the first."""
    if not is_session(path):
        return roster.load(path)
    session = load(path)
    return session.round({**session.agreed.head, **(head or {})})
