"""What a federation agrees on, once: everything that a site approves is in one digest."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import CorruptFileError, MismatchError, NumericalError, UsageError
from .envelope import canonical
from .keys import Party

INT64 = 2**63 - 1
SIGNED, MASKED = "signed", "masked"
DIGITS = 32  # that people compare
LARGEST = 4 << 20  # bytes of session.json


def usual_threshold(n: int, colluding: int = 0, noise: bool = False) -> int:
    return max(2 * n // 3 + 1, (n + colluding) // 2 + 1, colluding + (3 if noise else 2))


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """``head``: name, options, digest before the first round, and phases that it may need."""

    members: tuple[Party, ...]
    server: Party
    head: Mapping[str, Any]
    space: Mapping[str, Any]
    classes: tuple[str, ...]
    protection: str = MASKED
    threshold: int
    colluding: int = 0
    noise: Mapping[str, float] | None = None  # epsilon, delta, clip
    min_rows: int = 0
    max_rows: int = 1 << 24
    bits_of_row: int = 30  # log2 of the most that a row adds to a number (39 with residuals)
    follows: str = ""  # the digest of a session that members have left
    nonce: str = field(default_factory=lambda: token_hex(16))

    def __post_init__(self) -> None:
        n, t, c, people = len(self.members), self.threshold, self.colluding, self.people
        for what in ("name", "key"):
            seen = Counter(getattr(p, what).casefold() for p in (*self.members, self.server))
            if twice := [k for k, k_times in seen.items() if k_times > 1]:
                raise MismatchError(f"two parties have the {what} {twice[0]!r}, or one like it")
        if list(self.members) != sorted(self.members) or len(people) < 3:
            raise CorruptFileError("members are sorted by name, and two at least")
        if self.protection not in (SIGNED, MASKED):
            raise UsageError(f"the protection is {SIGNED} or {MASKED}, not {self.protection!r}")
        if not (2 * t > n + c and c + 2 <= t <= n):
            raise UsageError(
                f"the threshold of {n} members, {c} of them colluding, must be more than "
                f"{(n + c) / 2:g}, at least {c + 2} and at most {n}; found {t}"
            )
        if self.noise and (self.protection != MASKED or self.min_rows or t < c + 3):
            raise UsageError(
                f"noise is shared under masks, with a threshold of {c + 3} at least, and without "
                "--min-rows: a refusal would tell of the rows"
            )
        if n * self.max_rows * 2**self.bits_of_row > INT64:
            raise NumericalError("sums might not fit into int64: lower --max-rows")

    @property
    def masked(self) -> bool:
        return self.protection == MASKED

    @property
    def people(self) -> dict[str, Party]:
        return {p.name: p for p in (*self.members, self.server)}

    @property
    def phases(self) -> list[str]:
        return list(self.head["phases"])

    @property
    def limit(self) -> int:
        """The largest number of one member: the sum of all fits into int64."""
        return INT64 // len(self.members)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical(asdict(self))).hexdigest()

    @cached_property
    def code(self) -> str:
        """What people compare: 128 bits that cost 128 MiB a guess, so nobody looks for two alike."""
        slow = hashlib.scrypt(self.digest.encode(), salt=b"afltool session", n=1 << 17, r=8, p=1,
                              maxmem=1 << 28)  # fmt: skip
        text = slow.hex()[:DIGITS]
        return " ".join(text[i : i + 4] for i in range(0, DIGITS, 4))

    def check_approved(self, given: str | None, allowed: str = MASKED) -> None:
        """Refuse unless somebody has compared the code, and allowed a protection below masks."""
        if given is None:
            raise UsageError(f"{self}\ncompare with all by telephone, then --approve '{self.code}'")
        digits = "".join(c for c in given.lower() if c not in " -")
        if len(digits) != DIGITS or set(digits) - set("0123456789abcdef"):
            raise UsageError(f"--approve has {len(digits)} of {DIGITS} digits 0-9, a-f")
        if digits != self.code.replace(" ", ""):
            raise MismatchError(f"the session's code is {self.code}: not the one approved")
        if not self.masked and allowed != self.protection:
            raise UsageError(
                f"the server can read what leaves this site: --allow {self.protection} says yes"
            )

    def __str__(self) -> str:
        return "\n".join(f"{k:>12}  {v}" for k, v in self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """What a site approves, in words."""
        yield "code", self.code
        yield "members", ", ".join(p.name for p in self.members)
        yield "server", self.server.name
        n, t = len(self.members), self.threshold
        who = "the server alone" if not self.masked else f"the server with {2 * t - n} members"
        yield "protection", f"{self.protection}; {who} can read a site's statistics"
        yield (
            "noise",
            f"ε = {self.noise['epsilon']}, δ = {self.noise['delta']}" if self.noise else "none",
        )
        yield "threshold", f"{t} of {n} must stay"
        yield "head", f"{self.head['name']} {self.head['options']}, {len(self.phases)} rounds"
        yield "rows", f"{self.min_rows} to {self.max_rows} a site, {len(self.classes)} classes"
        if self.follows:
            yield "follows", f"the session {self.follows[:12]}, which members have left"

    @classmethod
    def parse(cls, data: bytes) -> Agreement:
        """From session.json; refused unless the file says exactly what is meant, in one way."""
        try:
            body = json.loads(data)
            body["members"] = tuple(Party(**one) for one in body["members"])
            body["server"], body["classes"] = Party(**body["server"]), tuple(body["classes"])
            made = cls(**body)
            same = made.text == data
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise CorruptFileError(f"the session file is damaged: {error}") from None
        if not same:
            raise CorruptFileError("the session file is not as afltool writes it")
        return made

    @property
    def text(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False).encode()

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.text)
        return path
