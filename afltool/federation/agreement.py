"""What a federation agrees on, once: everything that a site approves is in one digest."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import AflError, CorruptFileError, MismatchError, UsageError
from ..files.atomic import write_bytes
from ..values.parsed import parse_bins
from ..values.text import json_text
from .envelope import DOMAIN, canonical
from .keys import Keys, Party

SIGNED, MASKED = "signed", "masked"
DIGITS = 32  # that people compare
LARGEST = 4 << 20  # bytes of session.json
MOST_MEMBERS, MOST_ROWS = 200, 1 << 24
MOST_OPTION = 1 << 16  # of a head
LEAST_DELTA = 1e-12  # what 52 bits a draw can keep (`noise`)
HEX = re.compile(r"[0-9a-f]*")


def usual_threshold(n: int) -> int:
    """All of up to five members; of more, more than two thirds."""
    return n if n <= 5 else 2 * n // 3 + 1


@dataclass(frozen=True, order=True)
class Consent:
    """A member of ``session`` has signed that it leaves, and that its sums may become known."""

    name: str
    key: str
    session: str
    signature: str

    def __post_init__(self) -> None:
        for what, value in vars(self).items():
            _check(f"the {what} of a consent", value, isinstance(value, str), "a text")

    @classmethod
    def sign(cls, session: str, me: Keys) -> Consent:
        signature = me.signing.sign(cls._text(session, me.name))
        return cls(me.name, me.party.key, session, signature.hex())

    @staticmethod
    def _text(session: str, name: str) -> bytes:
        return DOMAIN + canonical(["leave", session, name])

    def check(self) -> None:
        _digits("the session of a consent", self.session, 64)
        _digits("the signature of a consent", self.signature, 128)
        signature, text = bytes.fromhex(self.signature), self._text(self.session, self.name)
        if not Party(self.name, self.key).has_signed(signature, text):
            raise MismatchError(f"{self.name!r} has not signed that it leaves {self.session[:12]}")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The terms of a session; refused, here already, unless each is of its type and in its range.

    Attributes:
        members: with their keys, sorted by name.
        server: who decides when a round is over, and nothing else.
        head: ``name``, ``options`` and ``digest`` of the head before its first round; each site
            makes it itself, with its phases.
        space: of the features that are summed; int16 with ``fraction_bits``.
        classes: their names, in order.
        protection: 'masked', or 'signed', in which the server reads each site's sums.
        threshold: t; so many members are enough to open a sum, and fewer open none.
        min_rows, max_rows: of one site; 0 with noise, under which nothing is refused for its rows.
        noise: None, or ``epsilon``, ``delta``, ``clip`` (largest norm of a row) and ``colluding``
            (members whose noise may not count).
        scale: None, or m: sites give raw features within ±2^m, and the first round brings them to
            mean 0 and deviation 1.
        evaluation: None, or ``groups`` (names), ``min_cell`` (fewest test rows of a class or a
            group at a site, or none) and ``bins`` of scores: the last round counts test rows.
        follows: digest of an earlier session of the same rows, or ''.
        consents: of those who have left it, or one before it.
        nonce: 32 random hexadecimal digits.
    """

    members: tuple[Party, ...]
    server: Party
    head: Mapping[str, Any]
    space: Mapping[str, Any]
    classes: tuple[str, ...]
    protection: str = MASKED
    threshold: int
    min_rows: int = 0
    max_rows: int
    noise: Mapping[str, Any] | None = None
    scale: int | None = None
    evaluation: Mapping[str, Any] | None = None
    follows: str = ""
    consents: tuple[Consent, ...] = ()
    nonce: str = field(default_factory=lambda: token_hex(16))

    def __post_init__(self) -> None:
        n, least = len(self.members), 3 if self.masked else 2
        for what in ("name", "key"):
            times = Counter(getattr(p, what).casefold() for p in (*self.members, self.server))
            if twice := [k for k, seen in times.items() if seen > 1]:
                raise MismatchError(f"two parties have the {what} {twice[0]!r}, or one like it")
        _check(
            "members", n, least <= n <= MOST_MEMBERS and list(self.members) == sorted(self.members)
        )
        _check("protection", self.protection, self.protection in (SIGNED, MASKED))
        _whole("threshold", self.threshold, max(least, n // 2 + 1), n)
        self._check_rows()
        if self.noise is not None:
            self._check_noise(self.noise)
        if self.scale is not None:
            _whole("scale", self.scale, 0, 30)
        if self.evaluation is not None:
            self._check_evaluation(self.evaluation)
        _digits("nonce", self.nonce, 32)
        _digits("follows", self.follows, 64 if self.follows else 0)
        for one in self.consents:
            one.check()

    def _check_rows(self) -> None:
        head, space = self.head, self.space
        _names("classes", self.classes, 1)
        _keys("head", head, "digest", "name", "options")
        _digits("digest of the head", head["digest"], 64)
        _check("name of the head", head["name"], isinstance(head["name"], str))
        _check("options of the head", head["options"], isinstance(head["options"], Mapping))
        seed = head["options"].get("seed")  # of many one may single out a row
        _check("seed of a session's head", seed, seed in (None, 0))
        for what, value in head["options"].items():
            if type(value) is int:  # of rounds, layers, width: what is shown fits into memory
                _whole(f"{what} of the head", value, -MOST_OPTION, MOST_OPTION)
        int16 = isinstance(space, Mapping) and space.get("dtype") == "int16"
        words = int16 and all(key.isascii() and key.isidentifier() for key in space)
        _check("space of int16 features", space, words)  # its keys are shown as they are
        _whole("features", space.get("dim"), 1, 1 << 20)
        _whole("fraction bits", space.get("fraction_bits"), 0, 15)
        _depth([head, space], 9)
        most = 0 if self.noise else MOST_ROWS  # with noise a refusal would tell of the rows
        _whole("max_rows", self.max_rows, min(1, most), most)
        _whole("min_rows", self.min_rows, 0, self.max_rows)

    def _check_noise(self, noise: Mapping[str, Any]) -> None:
        _keys("noise", noise, "clip", "colluding", "delta", "epsilon")
        alone = self.masked and self.scale is None and self.evaluation is None
        _check("noise beside scale, evaluation or without masks", noise, alone)
        _real("epsilon", noise["epsilon"], 1e-6, 1e10)
        _real("delta", noise["delta"], LEAST_DELTA, 0.5)
        _real("clip", noise["clip"], 2.0**-15, 2.0**20)
        _whole("colluding", noise["colluding"], 0, self._most_colluding)

    def _check_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        _keys("evaluation", evaluation, "bins", "groups", "min_cell")
        _names("groups", evaluation["groups"], 0)
        _whole("min_cell", evaluation["min_cell"], 1, 1 << 20)
        _check("bins", evaluation["bins"], isinstance(evaluation["bins"], str))
        parse_bins(evaluation["bins"])

    # ------------------------------------------------------------ what follows from the terms

    @property
    def masked(self) -> bool:
        return self.protection == MASKED

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
            return int(self.noise["colluding"])
        return self._most_colluding if self.masked else 0

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical(asdict(self))).hexdigest()

    @cached_property
    def code(self) -> str:
        """What people compare: 128 bits that cost 128 MiB a guess, so nobody looks for two alike.

        It is for the telephone: nothing that comes with the agreement may show it.
        """
        slow = hashlib.scrypt(
            self.digest.encode(), salt=b"afltool session", n=1 << 17, r=8, p=1, maxmem=1 << 28
        )
        text = slow.hex()[:DIGITS]
        return " ".join(text[i : i + 4] for i in range(0, DIGITS, 4))

    def check_approved(self, given: str | None, allowed: str = MASKED) -> None:
        """Refuse unless somebody has compared the code, and allowed a protection below masks."""
        if given is None:
            raise UsageError(
                "ask for the code by telephone, from somebody whose voice you know: --approve CODE "
                "says that you agree to all of the terms"
            )
        digits = "".join(c for c in given.lower() if c not in " -")
        if len(digits) != DIGITS or not HEX.fullmatch(digits):
            raise UsageError(f"--approve is malformed: expected {DIGITS} digits 0-9, a-f")
        if digits != self.code.replace(" ", ""):
            raise MismatchError("--approve is the code of another session: do not go on")
        if not self.masked and allowed != self.protection:
            raise UsageError(
                f"the server can read what leaves this site: --allow {self.protection} says yes"
            )

    # ------------------------------------------------------------ its file

    @classmethod
    def parse(cls, data: bytes) -> Agreement:
        """From session.json; refused unless the file says exactly what is meant, in one way."""
        try:
            body = json.loads(data)
            body["members"] = tuple(Party(**one) for one in body["members"])
            body["server"], body["classes"] = Party(**body["server"]), tuple(body["classes"])
            body["consents"] = tuple(Consent(**one) for one in body["consents"])
            made = cls(**body)
            same = made.text == data
        except (TypeError, LookupError, ValueError, AttributeError, RecursionError) as error:
            raise CorruptFileError(f"the session file is damaged: {error}") from None
        except AflError as error:
            raise CorruptFileError(f"the session file is refused: {error}") from None
        if not same:
            raise CorruptFileError("the session file is not as afltool writes it")
        return made

    @property
    def text(self) -> bytes:
        return json_text(asdict(self), indent=1, sort_keys=True, ensure_ascii=False).encode()

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_bytes(self.text, path)


# ---------------------------------------------------------------- types and ranges


def _check(what: str, value: object, good: bool, expected: str = "another value") -> None:
    if not good:
        raise UsageError(f"{what}: expected {expected}, found {str(value)[:200]!r}")


def _whole(what: str, value: object, least: int, most: int) -> None:
    good = type(value) is int and least <= value <= most
    _check(what, value, good, f"a whole number from {least} to {most}")


def _real(what: str, value: object, least: float, most: float) -> None:
    good = type(value) is float and least <= value <= most
    _check(what, value, good, f"a real number from {least:g} to {most:g}")


def _digits(what: str, value: object, size: int) -> None:
    good = isinstance(value, str) and len(value) == size and bool(HEX.fullmatch(value))
    _check(what, value, good, f"{size} digits 0-9, a-f")


def _keys(what: str, value: object, *keys: str) -> None:
    _check(what, value, isinstance(value, Mapping) and set(value) == set(keys), ", ".join(keys))


def _names(what: str, values: object, least: int) -> None:
    names = values if isinstance(values, list | tuple) else [None]
    known = {unicodedata.normalize("NFC", v) for v in names if isinstance(v, str) and v}
    good = len(known) == len(names) >= least
    _check(what, values, good, f"{least} or more different texts that are not empty")


def _depth(value: object, most: int) -> None:
    """Refuse what is nested deeply, or is no JSON, or not a finite number."""
    good = most > 0 and (
        value is None
        or isinstance(value, Mapping | list | tuple | str | int)
        or (isinstance(value, float) and math.isfinite(value))
    )
    _check("a term", value, good, "JSON that is nested less")
    if isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            _depth(one, most - 1)
