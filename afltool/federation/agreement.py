"""What a federation agrees on, once: everything that a site approves is in one digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_hex
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints
from unicodedata import normalize

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from ..errors import AflError, CorruptFileError, MismatchError, UsageError
from ..heads import HEADS, read_head
from ..values.text import difference, escape_line, json_text
from .keys import DOMAIN, Keys, Party, canonical

LARGEST = 4 << 20  # bytes of session.json
LEAST_DELTA = 1e-12  # what 52 bits a draw can keep (`noise`)
MOST_OPTION = 1 << 16  # of a head: rounds, layers, width that are shown fit into memory
HEX64 = "[0-9a-f]{64}"
Digest = Annotated[str, Meta(pattern=rf"^{HEX64}\Z")]
Nonce = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=500)]  # NFC takes quadratic time
Rows = Annotated[int, Meta(ge=0, le=1 << 24)]


def usual_threshold(n: int) -> int:
    """All of up to five members; of more, more than two thirds."""
    return n if n <= 5 else 2 * n // 3 + 1


def _expect(what: str, expected: str, good: object, found: object) -> None:
    if not good:
        raise UsageError(f"{what}: expected {expected}, found {str(found)[:200]!r}")


def _check_within(what: str, value: Any, least: int, most: int) -> None:
    good = type(value) is int and least <= value <= most
    _expect(what, f"a whole number from {least} to {most}", good, value)


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, Mapping) else value
    return 1 + max(map(_depth, parts), default=0) if isinstance(value, Mapping | list) else 0


def _convert(what: str, value: Any, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise UsageError(f"{what}: {error}, found {str(value)[:200]!r}") from None


class Space(TypedDict):
    """What a space of features has at least."""

    dtype: Literal["int16"]
    dim: Annotated[int, Meta(ge=1, le=1 << 20)]
    fraction_bits: Annotated[int, Meta(ge=0, le=15)]
    backbone: str
    columns: NotRequired[list[Name]]


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """Noise: (ε, δ) of one row, whose norm is cut to ``clip``."""

    epsilon: Annotated[float, Meta(ge=1e-6, le=1e10)]
    delta: Annotated[float, Meta(ge=LEAST_DELTA, le=0.5)]
    clip: Annotated[float, Meta(ge=2.0**-15, le=2.0**20)]
    colluding: Annotated[int, Meta(ge=0)] = 0


class Counted(Struct, frozen=True, forbid_unknown_fields=True):
    """How the last round counts test rows."""

    groups: tuple[Name, ...]
    min_cell: Annotated[int, Meta(ge=1, le=1 << 20)]  # rows of a class or a group, or none


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    """A head: its digest is that before its first round. Each site makes it; nobody sends it."""

    name: str
    options: dict[str, Any]
    digest: Digest


@dataclass(frozen=True, order=True)
class Consent:
    """A member of ``session`` has signed that it leaves, and that its sums may become known."""

    name: str
    key: str
    session: Digest
    signature: Annotated[str, Meta(pattern=rf"^{HEX64}{HEX64}\Z")]

    def __post_init__(self) -> None:
        text = _leaving(self.session, self.name)
        if not Party(self.name, self.key).has_signed(bytes.fromhex(self.signature), text):
            raise MismatchError(f"{self.name!r} has not signed that it leaves {self.session[:12]}")

    @classmethod
    def sign(cls, session: str, me: Keys) -> Consent:
        signature = me.signing.sign(_leaving(session, me.name))
        return cls(me.name, me.party.key, session, signature.hex())


def _leaving(session: str, name: str) -> bytes:
    return DOMAIN + canonical(["leave", session, name])


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The terms of a session; refused unless each is of its type and in its range."""

    members: tuple[Party, ...]  # sorted by name
    server: Party  # who decides when a round is over, and nothing else
    head: Named
    space: Mapping[str, Any]  # of the features that are summed: int16 with fraction bits
    classes: Annotated[tuple[Name, ...], Meta(min_length=1)]  # their names, in order
    protection: Literal["masked", "signed"] = "masked"  # signed: the server reads each site's sums
    threshold: int  # t: so many members are enough to open a sum, and fewer open none
    min_rows: Rows = 0  # of one site
    max_rows: Rows  # 0 with noise, under which nothing is refused for its rows
    noise: Budget | None = None
    #: m: round 1 brings features within ±2^m to mean 0, deviation 1
    scale: Annotated[int, Meta(ge=0, le=30)] | None = None
    evaluation: Counted | None = None
    #: an earlier session of the same rows
    follows: Annotated[str, Meta(pattern=rf"^({HEX64})?\Z")] = ""
    consents: tuple[Consent, ...] = ()  # of those who have left it, or one before it
    nonce: Nonce = field(default_factory=lambda: token_hex(16))

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            value = to_builtins(getattr(self, name))  # made anew: a `Struct` checks nothing
            object.__setattr__(self, name, _convert(name, value, kind))
        n, least = len(self.members), 3 if self.masked else 2
        for what in ("name", "key"):
            times = Counter(getattr(p, what).casefold() for p in (*self.members, self.server))
            if twice := [k for k, seen in times.items() if seen > 1]:
                raise MismatchError(f"two parties have the {what} {twice[0]!r}, or one like it")
        _check_within("members", n, least, 200)
        _expect("members", "them sorted", list(self.members) == sorted(self.members), n)
        _check_within("threshold", self.threshold, max(least, n // 2 + 1), n)
        self._check_head()
        _convert("space", self.space, Space)
        groups = self.evaluation.groups if self.evaluation else ()
        columns = self.space.get("columns", ())
        for what, names in (("classes", self.classes), ("groups", groups), ("columns", columns)):
            known = {normalize("NFC", name) for name in names}
            _expect(what, "different texts", len(known) == len(names), names)
        words = all(key.isascii() and key.isidentifier() for key in self.space)  # shown as they are
        _expect("space", "words as keys, not deep", words and _depth(self.space) < 9, self.space)
        if self.noise is not None:
            if not self.masked or self.scale is not None or self.evaluation is not None:
                raise UsageError("noise needs masks, and neither a scale nor an evaluation")
            _check_within("colluding", self.noise.colluding, 0, self._most_colluding)
            _check_within(
                "max_rows with noise, where a refusal would tell of rows", self.max_rows, 0, 0
            )
        else:
            _expect("max_rows (--max-rows)", "at least 1", self.max_rows, 0)
        _check_within("min_rows", self.min_rows, 0, self.max_rows)

    def _check_head(self) -> None:
        """Refuse options that are not exactly those that the head itself writes."""
        name, given = self.head.name, self.head.options
        _expect("head", ", ".join(HEADS), name in HEADS, name)
        for what in (what for what, value in given.items() if type(value) is int):
            _check_within(f"option {what!r} of the head", given[what], -MOST_OPTION, MOST_OPTION)
        written = read_head(name, given).options.as_dict()
        where = difference(written, given, "of the head", "agreed")
        same = canonical(written) == canonical(given)
        _expect("options of the head", "what it writes", same, where)
        _expect("seed of a session's head", "0", not given.get("seed"), given.get("seed"))

    @property
    def masked(self) -> bool:
        return self.protection == "masked"

    @cached_property
    def people(self) -> dict[str, Party]:
        return {p.name: p for p in (*self.members, self.server)}

    @cached_property
    def places(self) -> dict[str, int]:
        """At which place, from 1, a member's shares are."""
        return {p.name: i for i, p in enumerate(self.members, 1)}

    @property
    def _most_colluding(self) -> int:
        """c = min(2t − n − 1, t − 3): two sets of t share more than c, and t − c open a sum."""
        return min(2 * self.threshold - len(self.members) - 1, self.threshold - 3)

    @property
    def colluding(self) -> int:
        """How many members may work with the server; 0 where it reads all."""
        if self.noise is not None:
            return self.noise.colluding
        return self._most_colluding if self.masked else 0

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical(to_builtins(self))).hexdigest()

    @cached_property
    def code(self) -> str:
        """What people compare by telephone, shown nowhere else; a guess costs 128 MiB."""
        cost: Any = {"n": 1 << 17, "r": 8, "p": 1, "maxmem": 1 << 28}
        slow = hashlib.scrypt(self.digest.encode(), salt=b"afltool session", **cost)
        return " ".join(re.findall("....", slow.hex()[:32]))

    def check_approved(self, given: str, allowed: str = "masked") -> None:
        """Refuse unless somebody has compared the code, and allowed a protection below masks."""
        digits = re.sub("[ -]", "", given.lower())
        if not re.fullmatch("[0-9a-f]{32}", digits):  # which are not shown
            raise UsageError("--approve is malformed: expected 32 digits 0-9, a-f")
        if digits != self.code.replace(" ", ""):
            raise MismatchError("--approve is the code of another session: do not go on")
        if not self.masked and allowed != self.protection:
            raise UsageError(f"the server reads this site's sums: --allow {self.protection}")

    @classmethod
    def parse(cls, data: bytes) -> Agreement:
        """From session.json; refused unless the file says exactly what is meant, in one way."""
        try:
            if (made := cls(**json.loads(data))).text == data:
                return made
            raise ValueError("it is not as afltool writes it")
        except (AflError, TypeError, LookupError, ValueError, AttributeError, RecursionError) as e:
            raise CorruptFileError(
                f"the session file is damaged or refused: {escape_line(e)}"
            ) from None

    @property
    def text(self) -> bytes:
        return json_text(to_builtins(self), indent=1, sort_keys=True, ensure_ascii=False).encode()
