"""A campaign against a finished round: every file altered, swapped, replayed; no wrong total."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from damage import cut, flip, forge
from rounds_under_masks import Round, digest

import afltool
from afltool.errors import AflError
from afltool.files import hdf5

TRIES = int(os.environ.get("AFLTOOL_TRIES", "100"))  # 1,000 in docs/reliability.md


class Campaign:
    """Two finished rounds of the same members; each try works on a copy of the first one's files.

    One member of the first round dropped out after its offer. `server`, `member` and `again` may be
    fooled: the total, the bytes that a member sends, and what it sends once its round is over.
    """

    def __init__(self, folder: Path) -> None:
        self.round = Round(folder, 5, 3)
        self.stayed = ["site-0", "site-1", "site-3", "site-4"]
        self.first_round()
        self.good, self.roster = self.round.where, self.round.roster
        self.signing = self.sign("signing.json", self.good)
        self.wanted = self.round.wanted(self.stayed)
        self.round.new_roster("old.json", 3)
        self.round.whole(self.round.sites, self.stayed)
        self.old = self.round.where
        self.sign("old-signing.json", self.old)
        self.round.where = self.good
        afltool.keys(["eve"], folder / "eve")
        self.seen: Counter[str] = Counter()

    def first_round(self) -> None:
        """Every step; the members' private files are kept as they are before they answer."""
        self.round.offer(self.round.sites)
        files = [self.round.masked(name) for name in self.stayed]
        request = self.round.aggregate(files)
        self.before = self.round.folder / "keys-before"
        shutil.copytree(self.round.folder / "keys", self.before)
        self.round.aggregate(files, (self.round.reveal(self.stayed, request),))

    def sign(self, name: str, where: Path) -> Path:
        """The roster of a round of signed files, which are written beside the masked ones."""
        made = self.round.new_roster(name, 3, protection="signed")
        self.round.where = where
        for site in self.stayed:
            self.round.signed(site)
        return made

    # ------------------------------------------------------------ one try

    def attempt(self, rng: random.Random, work: Path) -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.good, work / "round")
        shutil.copy(self.roster, work / "roster.json")
        kind = rng.choice(["masked", "masked", "signed", "offers", "reveals", "roster", "request"])
        how = rng.choice([*ALTERATIONS, *(OF_ARRAYS if kind in ("masked", "signed") else OF_JSON)])
        target = self.target(kind, rng, work)
        names = how(self, target, rng)
        steps = (self.server, self.member, self.again)
        for step in (self.signed,) if kind == "signed" else steps:
            outcome = self.run(step, work, target, names)
            self.seen[f"{kind}: {outcome}"] += 1

    def target(self, kind: str, rng: random.Random, work: Path) -> Path:
        if kind == "roster":
            return work / "roster.json"
        if kind == "request":
            return work / "round" / "total.request.json"
        return rng.choice(sorted((work / "round" / kind).iterdir()))

    def run(self, step, work: Path, target: Path, names: list[str]) -> str:
        try:
            step(work)
        except AflError as error:
            said = str(error)
            known = [target.name, *names, target.stem.split("-", 1)[-1]]
            assert any(name in said for name in known), f"{step.__name__}: {said} ({target})"
            return "refused by name"
        return "harmless"

    def server(self, work: Path) -> None:
        at = work / "round"
        (at / "total.h5").unlink(missing_ok=True)
        total = afltool.aggregate(
            [at / "masked"], at / "total.h5", roster=work / "roster.json",
            offers=(at / "offers",), reveal=(at / "reveals",),
            key=self.round.server.with_suffix(".key"),
        )  # fmt: skip
        assert digest(total) == self.wanted, "a wrong total"

    def signed(self, work: Path) -> None:
        out = work / "round" / "sum.h5"
        total = afltool.aggregate([work / "round" / "signed"], out, roster=self.signing)
        names = afltool.info(total)["client_names"]
        assert len(names) >= len(self.stayed) - 1
        assert digest(total) == self.wanted_of(names), "a wrong total"

    def wanted_of(self, names: list[str]) -> str:
        """The digest of the plain sum over these members."""
        if names == self.stayed:
            return self.wanted
        return self.round.wanted(names, "fewer.h5")

    def member(self, work: Path) -> None:
        """site-0 masks again and answers with these files: the same numbers, or nothing."""
        at, out, keys = work / "round", work / "out", work / "keys"
        shutil.copytree(self.before, keys)
        both = {"roster": work / "roster.json"}
        sent = afltool.local_stats(
            self.round.folder / "site-0.h5", self.round.head, out, client="site-0",
            sign=keys / "site-0.key", mask=(at / "offers",), again=True, **both,
        )  # fmt: skip
        assert digest(sent) == digest(self.good / "masked" / "client-site-0.h5"), "other masks"
        answer = afltool.mask_reveal(
            at / "total.request.json", out, key=keys / "site-0.key", offers=(at / "offers",), **both
        )
        assert self.total_with(answer[0], work / "honest") == self.wanted, "another answer"

    def total_with(self, answer: Path, place: Path) -> str:
        """The digest of the honest total with this answer of site-0 in the place of its own."""
        shutil.copytree(self.good, place)
        shutil.copy(answer, place / "reveals" / "reveal-site-0.json")
        try:
            return digest(
                afltool.aggregate(
                    [place / "masked"],
                    place / "total.h5",
                    roster=self.roster,
                    overwrite=True,
                    offers=(place / "offers",),
                    reveal=(place / "reveals",),
                    key=self.round.server.with_suffix(".key"),
                )
            )
        except AflError as error:
            return f"refused: {error}"

    def again(self, work: Path) -> None:
        """site-0, whose round is over, answers with these files: the same bytes, or nothing."""
        answer = afltool.mask_reveal(
            work / "round" / "total.request.json", work / "again", key=self.round.key("site-0"),
            offers=(work / "round" / "offers",), roster=work / "roster.json",
        )  # fmt: skip
        honest = self.good / "reveals" / "reveal-site-0.json"
        assert answer[0].read_bytes() == honest.read_bytes(), "another answer"


# ---------------------------------------------------------------- what is done to a file; it
# returns names of members that a refusal may speak of instead of the file


def everybody(c: Campaign) -> list[str]:
    return [*c.round.sites, "eve"]


def flipped(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    flip(path, path, rng.randrange(path.stat().st_size), 1 << rng.randrange(8))
    return everybody(c)


def truncated(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    cut(path, path, rng.randrange(path.stat().st_size))
    return []


def of_another_round(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """Replayed: the same member's file of the other round."""
    old = c.round.folder / "old.json"
    if path.name != "roster.json":
        inside = path.parent if path.parent.name == "round" else path.parents[1]
        old = c.old / path.relative_to(inside)
    shutil.copy(old, path)
    return everybody(c)


def of_another_member(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """One file in another one's place: somebody twice, somebody not at all."""
    others = sorted(set(path.parent.glob("*" + path.suffix)) - {path})
    if not others:  # of its kind there is one
        return flipped(c, path, rng)
    shutil.copy(rng.choice(others), path)
    return [*everybody(c), "request"]


def twice(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    shutil.copy(path, path.with_name(f"again-{path.name}"))
    return everybody(c)


def swapped_names(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """Two files trade their names: harmless, or of two kinds and refused."""
    files = [p for p in sorted(path.parent.iterdir()) if p.is_file() and p.suffix == path.suffix]
    other = rng.choice(files)
    between = path.with_name("between")
    path.rename(between)
    if other != path:
        other.rename(path)
    between.rename(other)
    return [*everybody(c), other.name]


def lost(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    path.unlink()
    return [*everybody(c), path.parent.name, "request"]


def header_forged(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """A field of the header changed, all checksums made right."""
    header = hdf5.read_header(path)
    changes = [
        {"phase": "codes"},
        {"clients": {**header["clients"], "names": [rng.choice(everybody(c))]}},
        {"clients": {**header["clients"], "gamma": [1.0]}},
        {"context": {**header["context"], "classes": ["a"] * len(header["context"]["classes"])}},
        {"seal": {**header["seal"], "signature": "00" * 64}},
        {"digest": "0" * 64},
    ]
    forge(path, path.with_name("forged"), rng.choice(changes))
    path.with_name("forged").rename(path)
    return everybody(c)


def numbers_forged(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """A number changed, or two arrays of equal shape traded, the digest made right or not."""
    _, arrays = hdf5.read_file(path, hdf5.read_header(path)["kind"])
    name = rng.choice(sorted(arrays))
    changed = arrays[name].copy()
    if rng.random() < 0.5:
        changed[rng.randrange(len(changed))] += 1
    else:
        changed[:] = changed[::-1].copy()
    shown = name.replace("/", "__")
    forge(path, path.with_name("forged"), None, **{shown: changed})
    path.with_name("forged").rename(path)
    if rng.random() < 0.5:
        redigest(path)
    return everybody(c)


def redigest(path: Path) -> None:
    """Make the digest in the header that of the arrays; the seal stays what it was."""
    from afltool.files.masked import masked_digest
    from afltool.values.statistics import Statistics

    kind = hdf5.read_header(path)["kind"]
    header, arrays = hdf5.read_file(path, kind)
    named = {k.removeprefix("arrays/"): a for k, a in arrays.items()}
    if kind == "masked":
        found = masked_digest(header["phase"], named)
    else:
        counts = named.pop("class_counts")
        wide = {k: a.astype(np.int64) for k, a in named.items()}
        found = Statistics(header["phase"], wide, counts).digest()
    forge(path, path.with_name("forged"), {"digest": found})
    path.with_name("forged").rename(path)


def field_changed(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """A value somewhere in the JSON replaced by another of its kind, or by one of no kind."""
    found = json.loads(path.read_text())
    places = list(leaves(found))
    holder, key = rng.choice(places)
    value = holder[key]
    if isinstance(value, str) and len(value) >= 32 and rng.random() < 0.8:
        at = rng.randrange(len(value))
        holder[key] = value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :]
    else:
        holder[key] = rng.choice(["site-1", "eve", 2, 0, -1, None, "", [], 10**30])
    path.write_text(json.dumps(found))
    return everybody(c)


def leaves(value):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, (dict, list)):
            yield from leaves(inner)
        else:
            yield value, key


def signed_by_a_stranger(c: Campaign, path: Path, rng: random.Random) -> list[str]:
    """The body kept, or its member renamed to a stranger; signed anew by the stranger's key."""
    from afltool.privacy import identity

    eve = identity.load(c.round.folder / "eve" / "eve.key")
    found = json.loads(path.read_text())
    if "member" in found["body"] and rng.random() < 0.5:
        found["body"]["member"] = "eve"
    found["signature"] = eve.sign(found["body"]).signature
    path.write_text(json.dumps(found))
    return everybody(c)


ALTERATIONS = (
    flipped, flipped, truncated, of_another_round, of_another_member, twice, swapped_names, lost,
)  # fmt: skip
OF_ARRAYS = (header_forged, header_forged, numbers_forged, numbers_forged)
OF_JSON = (field_changed, field_changed, field_changed, signed_by_a_stranger)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    return Campaign(tmp_path_factory.mktemp("campaign"))


def tries(campaign: Campaign, work: Path, seeds) -> Counter[str]:
    for seed in seeds:
        try:
            campaign.attempt(random.Random(seed), work)
        except BaseException as error:
            error.add_note(f"try {seed}")
            raise
    return campaign.seen


def test_no_altered_file_makes_a_wrong_total(campaign, tmp_path):
    seen = tries(campaign, tmp_path / "work", range(25))
    assert sum(n for k, n in seen.items() if "refused" in k) > 12


@pytest.mark.slow
def test_no_altered_file_makes_a_wrong_total_in_many_tries(campaign, tmp_path):
    seen = tries(campaign, tmp_path / "work", range(1000, 1000 + TRIES))
    print(json.dumps(dict(sorted(seen.items())), indent=1))
    assert sum(seen.values()) >= TRIES
