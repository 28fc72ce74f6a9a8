"""What is done to a client's statistics before they leave it: clip, noise, masks, signature."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import MismatchError, UsageError
from ..files.features import Features
from ..files.masked import masked_digest, save_masked
from ..files.statistics import Protection, save_statistics, statistics_header
from ..heads.base import Head, binding
from ..options.privacy import PLAIN
from ..options.statistics import ProtectionOptions
from ..progress import log
from ..values.arrays import canonical_json
from ..values.names import KEY, file_stem
from ..values.statistics import Statistics
from . import identity, masking
from .identity import Identity, derive
from .noise import ALGORITHM
from .offers import Offers
from .roster import Roster
from .rounds import Release, RoundFolder, open_rounds, rounds_of
from .sealing import sealing
from .session import roster_of
from .terms import Budget

if TYPE_CHECKING:
    from .differential import Noise

Recipe = dict[str, Any]


@dataclass(frozen=True)
class Protected(Protection):
    """The protections that the options of `local-stats` ask for: a signature at least."""

    in_any_thread = False  # what is released is written down, one after the other

    sign: Path
    passphrase: bytes | None = None
    roster: Roster | None = None
    offers: Offers | None = None
    noise: Noise | None = None
    again: bool = False
    released: Mapping[str, Any] = field(default_factory=dict)  # what else its noise depends on
    _keys: dict[str, Identity] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, o: ProtectionOptions, sign: Path, head: object, bound: Head, rows: Features
    ) -> Protected:
        """Read the files of the options; refuse options that do not fit the head, the features or
        the roster. ``head`` is the file or the name of the ``bound`` one."""
        roster, budget, context = None, Budget.of(o), binding(bound)
        if o.roster is not None:
            roster = roster_of(o.roster, context)
            if not o.mask:  # masks are bound to the roster whose digest `mask offer` has shown
                log.info("local-stats: the roster's digest is %s", roster.compared)
            roster.check_head(f"the head {head}", context)
            budget = roster.terms.noise_for(budget, bool(o.mask), o.roster)
            roster.terms.check_rows(rows.path, o.roster, rows.header)
        offers = Offers.load(roster, o.mask) if o.mask and roster is not None else None
        secret = passphrase(o.passphrase_file)
        protected = cls(sign, secret, roster, offers, again=o.again)
        if budget is None:
            return protected
        from .differential import noise_of  # and SciPy's special functions

        shared_by = None if offers is None else offers.roster
        shapes = {name: spec.shape for name, spec in bound.array_specs(rows.bits).items()}
        noise = noise_of(budget, context, rows.header["space"], shared_by, shapes)
        shapes[masking.COUNTS] = (len(rows.classes),)
        facts = noise.facts({name: prod(shape) for name, shape in shapes.items()})
        return replace(
            protected, noise=noise, released={"head": context, "shapes": shapes, "noise": facts}
        )

    @property
    def masks(self) -> bool:
        return self.offers is not None

    @property
    def least_rows(self) -> int:
        return 0 if self.roster is None else self.roster.min_rows

    @property
    def plain(self) -> bool:
        """Whether files leave as without a roster, whose other terms they keep."""
        return self.roster is not None and self.roster.terms.mode == PLAIN and self.noise is None

    @property
    def hides(self) -> bool:
        return self.noise is not None or self.masks

    def identity(self, name: str) -> Identity:
        """The private key of a client, read once: all steps have the same one."""
        if name not in self._keys:
            me = key_of(self.sign, name, self.passphrase)
            if me.name != name:
                raise MismatchError(
                    f"the key {me.path} belongs to {me.name!r}, the client is {name!r}"
                )
            if self.roster is not None and self.roster.series is not None:
                self.roster.check_key(me)
            self._keys[name] = me
        return self._keys[name]

    def blocks(self, blocks: Iterable[Any]) -> Iterable[Any]:
        return blocks if self.noise is None else self.noise.clipped(blocks)

    def check_new(self, name: str, content: str) -> None:
        """Refuse statistics of a client that were masked in another round."""
        if self.offers is not None:
            me = self.identity(name)
            RoundFolder.of(self.offers.roster, me).check_new(content, self.again)
        elif not self.hides:
            self._check_no_round(self.identity(name))

    @staticmethod
    def _check_no_round(me: Identity) -> None:
        """Refuse readable statistics of a member that has offered masks: they are easily
        forgotten, and a roster that was put in the place of another one asks for none."""
        if rounds := open_rounds(me):
            raise MismatchError(
                f"{me.name!r} has made an offer for a round under masks ({rounds[0]}), and without "
                "masks these statistics can be read: give --roster and --mask of that round. If "
                "the round was given up, end it with mask forget; for rounds of two kinds at one "
                "time use two keys"
            )

    def say_next(self, written: Sequence[Path]) -> None:
        """What is to be done with masked files."""
        if self.offers is not None and (server := self.offers.roster.server):
            files = written[0] if len(written) == 1 else f"the {len(written)} files"
            roster = self.offers.roster
            log.info(
                f"next, send {files} to {server.name!r}, which adds up: afltool aggregate FILES "
                f"--roster {roster.path.name} --offers OFFERS --key {file_stem(server.name)}.key "
                f"-o total.h5{'' if roster.all else '; then answer what it asks'}"
            )

    # ------------------------------------------------------------ recipes

    def recipe(self, made_by: Mapping[str, Any]) -> Recipe:
        """The recipe of a protected file.

        If the statistics are hidden, the digest of the features is hidden, too: with it, anybody
        could check a guess. A digest under the client's key takes its place; only the client can
        recognise its file by it.
        """
        if self.plain:
            return dict(made_by)
        me = self.identity(made_by["options"]["clients"][0])
        options, inputs = dict(made_by["options"]), dict(made_by["inputs"])
        inputs["key"] = me.member.sign
        inputs["roster"] = None if self.roster is None else self.roster.digest
        if self.hides:
            inputs["features"] = self.mark(me, made_by)
        if self.offers is not None:
            made_by = {**made_by, "stage": "mask"}
            inputs["offers"] = self.offers.digest
        if self.noise is not None:
            options["noise"] = [self.noise.epsilon, self.noise.delta, self.noise.clip]
        return {**made_by, "options": options, "inputs": inputs}

    def mark(self, me: Identity, made_by: Mapping[str, Any]) -> str:
        """A digest of a recipe under a client's key: others learn nothing from it.

        It is another one in each round, so that nobody sees from two of them whether the rows have
        changed; without a roster for each release.
        """
        release = self.release(me, made_by) if self.roster is None else None
        about = [made_by, self.roster and self.roster.digest, release and release.nonce.hex()]
        return derive(me.private_key("recipe"), _sha(canonical_json(about)), "recipe").hex()

    def release(self, me: Identity, made_by: Mapping[str, Any]) -> Release | None:
        """The release with noise that this recipe makes; None without noise."""
        if self.noise is None:
            return None
        context = {
            **self.released,
            "algorithm": ALGORITHM,
            "recipe": made_by,
            "key": me.member.sign,
            "roster": self.roster and self.roster.digest,
            "offers": self.offers and self.offers.digest,
        }
        folder = rounds_of(me)
        if self.offers is not None:  # there it is deleted with the other secrets of the round
            folder = RoundFolder.of(self.offers.roster, me).folder
        return Release.of(me, folder, context)

    # ------------------------------------------------------------ files

    def save(
        self,
        path: Path,
        statistics: Statistics,
        made_by: Mapping[str, Any],
        head_file: str | None,
        content: str,
    ) -> Path:
        """Write one client's statistics with what protects them."""
        me = self.identity(made_by["options"]["clients"][0])
        folder = None
        if self.offers is not None:
            folder = self._ready_to_mask(me, self.offers)
        if self.noise is not None and (release := self.release(me, made_by)) is not None:
            statistics = self.noise.added(statistics, release.key())
        if self.plain:
            return super().save(path, statistics, made_by, head_file, content)
        shown, head_file = (_hidden(statistics), None) if self.hides else (statistics, head_file)
        if folder is None or self.offers is None:
            seal = sealing(me, self.roster)
            return save_statistics(path, shown, self.recipe(made_by), head_file, seal=seal)
        arrays = masking.plain(folder.roster, me.name, statistics)
        masking.mask(self.offers, me.name, folder.secrets(), arrays)
        digest = masked_digest(statistics.phase, arrays)
        folder.claim(content, self.again)
        folder.once(
            "used",
            {"offers": self.offers.digest, "made_of": self.mark(me, made_by), "message": digest},
            f"the masks of {me.name!r} for this round were used for other statistics or other "
            "offers, and two sums under one mask reveal their difference: make a new roster for "
            "another round",
        )
        folder.go_on()
        header = statistics_header(shown, self.recipe(made_by), digest)
        header["provenance"] = {"afltool": __version__}
        return save_masked(path, sealing(me, folder.roster, self.offers.digest)(header), arrays)

    @staticmethod
    def _ready_to_mask(me: Identity, offers: Offers) -> RoundFolder:
        """The folder of a round for which this member has made one of these offers."""
        folder = RoundFolder.of(offers.roster, me)
        mine = offers.by_member.get(me.name)
        if mine != folder.secrets().offer:
            what = (
                "is not among the offers" if mine is None else "differs from the one in the offers"
            )
            raise MismatchError(
                f"the offer that {me.name!r} has made {what}; all members must mask with the same "
                "offers"
            )
        offers.check_all(me)
        return folder


def _hidden(statistics: Statistics) -> Statistics:
    """The same without row counts and digests of features."""
    clients = {
        who: replace(client, rows=None, source="") for who, client in statistics.clients.items()
    }
    return replace(statistics, clients=clients)


def _sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# ---------------------------------------------------------------- keys on the command line


def passphrase(path: Path | None) -> bytes | None:
    """The first line of a file; None without one."""
    if path is None:
        return None
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read --passphrase-file {path}: {error.strerror}") from None
    if not lines or not lines[0]:
        raise UsageError(f"--passphrase-file {path} is empty: expected the passphrase in line 1")
    return lines[0]


def key_of(where: Path, name: str, secret: bytes | None = None) -> Identity:
    """A private key file, or that of a name in a folder."""
    path = where / f"{file_stem(name)}{KEY}" if where.is_dir() else where
    return identity.load(path, secret)


def keys_in(where: Path, secret: bytes | None = None) -> list[Identity]:
    """The private key of a file, or all of a folder."""
    paths = sorted(where.glob(f"*{KEY}")) if where.is_dir() else [where]
    if not paths:
        raise UsageError(f"there is no private key (*.key) in {where}")
    return [identity.load(path, secret) for path in paths]
