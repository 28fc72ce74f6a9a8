"""Small federations with keys, for the tests of privacy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from afltool.files.atomic import write_once
from afltool.privacy import identity, masking, messages, offers, reveal, roster, rounds
from afltool.privacy.reveal import Request
from afltool.privacy.terms import Terms
from afltool.values.names import Phase
from afltool.values.statistics import Statistics

HEAD = {"name": "linear", "phase": "gram", "digest": "ab" * 32}
MASKED = Terms("masked")
SERVER = identity.Identity.new("server")


def new_roster(members, threshold=None, head=HEAD, terms=MASKED, **more) -> roster.Roster:
    """A roster of these members, under masks."""
    more = {"server": SERVER.member, **more}
    return roster.Roster.new(members, head, threshold, terms=terms, **more)


def save(one: identity.Identity, folder: Path, passphrase: bytes | None = None):
    """The paths of a member's private and public file."""
    private = identity.save_private(one, folder, passphrase)
    return private, identity.save_public(one, folder)


class Federation:
    """n members with keys in a folder, a roster, and the steps of a round without files."""

    def __init__(self, folder: Path, n: int, threshold: int | None = None, head=HEAD) -> None:
        self.folder = folder
        self.me = {}
        for i in range(n):
            one = identity.Identity.new(f"site-{i}")
            private, _ = save(one, folder / "keys")
            self.me[one.name] = identity.load(private)
        members = [one.member for one in self.me.values()]
        self.roster = new_roster(members, threshold, head)

    def round_folder(self, name: str) -> rounds.RoundFolder:
        return rounds.RoundFolder.of(self.roster, self.me[name])

    def drawn(self, name: str) -> offers.Secrets:
        """The secrets of a member, with its offer."""
        self.round_folder(name).offer()
        return self.round_folder(name).secrets()

    def offers(self, names=None) -> offers.Offers:
        made = {n: self.round_folder(n).offer() for n in sorted(names or self.me)}
        return offers.Offers(self.roster, made)

    def masked(self, offered: offers.Offers, name: str, statistics: Statistics) -> masking.Masked:
        arrays = masking.plain(self.roster, name, statistics)
        masking.mask(offered, name, self.round_folder(name).secrets(), arrays)
        return arrays

    def seal(self, offered: offers.Offers, name: str, header: str = "cd" * 32):
        body = {
            "kind": "seal",
            "member": name,
            "roster": self.roster.digest,
            "offers": offered.digest,
            "header": header,
        }
        return self.me[name].sign(body)

    def request(self, offered: offers.Offers, stayed) -> Request:
        return Request.new(offered, {n: self.seal(offered, n) for n in stayed})

    def opened(self, request, answers, server=SERVER) -> dict[str, reveal.Shares]:
        """The shares in answers, as the server reads them from files."""
        folder = self.folder / "answers"
        shutil.rmtree(folder, ignore_errors=True)
        for i, one in enumerate(answers):
            messages.write(folder / f"{i}.json", one)
        return reveal.load_reveals(request, [folder], server)

    def sum_under_masks(self, offered, found, stayed, phase="gram", order=list) -> Statistics:
        """The whole round over its functions; the unmasked sum of those that stayed."""
        masked = {n: self.masked(offered, n, found[n]) for n in stayed}
        summed = {k: np.zeros_like(a) for k, a in masked[stayed[0]].items()}
        for name in order(stayed):
            masking.add_into(summed, masked[name], name)
        request = self.request(offered, stayed)
        answers = {n: reveal.reveal(request, self.me[n]) for n in order(stayed)}
        first = list(answers.items())[: self.roster.threshold]
        opened = {n: reveal.opened(request, one, SERVER) for n, one in first}
        masking.unmask(offered, stayed, reveal.secrets_of(request, opened), summed)
        arrays, counts = masking.as_integers(summed, len(found) * self.roster.limit)
        return Statistics(Phase(phase), arrays, counts)


def statistics_of(rng, d: int = 7, classes: int = 3, rows: int = 20) -> Statistics:
    """gram (a triangle) and cross of random integer rows."""
    X = rng.integers(-(2**15) + 1, 2**15, (rows, d))
    y = rng.integers(0, classes, rows)
    cross = np.zeros((d, classes), np.int64)
    np.add.at(cross.T, y, X)
    gram = (X.T @ X)[np.tril_indices(d)]
    counts = np.bincount(y, minlength=classes)
    return Statistics(Phase("gram"), {"gram": gram, "cross": cross}, counts)


LOW = {"n": 2**14, "r": 8, "p": 1}  # the least cost that is read


def locked(path, one, secret, cost=LOW, **changed) -> Path:
    """A key file under a passphrase, with some of its fields changed afterwards."""
    keys = {"sign": one.signing, "agree": one.agreeing}
    raw = {k: key.private_bytes_raw().hex() for k, key in keys.items()}
    fields = identity.locked({"kind": "private-key", "name": one.name}, raw, secret, cost)
    path.unlink(missing_ok=True)
    write_once(path, json.dumps({**fields, **changed}).encode())
    return path
