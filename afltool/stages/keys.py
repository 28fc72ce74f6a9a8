"""Stages `keys` and `roster`: who a member is, and what a federation agrees on before a round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..differences import difference
from ..errors import AflError, OutputExistsError, UsageError
from ..heads.base import binding
from ..names import KEY, PUBLIC, file_stem
from ..options import made, takes
from ..options.privacy import KeysOptions, RosterOptions
from ..privacy import identity
from ..privacy.identity import Identity
from ..privacy.protection import key_of, passphrase
from ..privacy.roster import Roster
from ..privacy.roster import load as load_roster
from ..privacy.roster import save as save_roster
from ..progress import log
from ..store.heads import head_from


@takes(KeysOptions)
def keys(names: Sequence[str], out: str | Path, **options: Any) -> list[Path]:
    """Make a key pair for each name in the folder ``out``; returns the public files.

    NAME.key is private (mode 600) and never leaves its owner; NAME.pub goes to the others. A pair
    that is there is kept.
    """
    folder, secret = Path(out), passphrase(made(KeysOptions, options).passphrase_file)
    found = []
    for name in names:
        new = Identity.new(name)
        private = folder / f"{file_stem(name)}{KEY}"
        if private.exists():
            log.info("keys: %s is kept", private)
            found.append(identity.save_public(key_of(private, name, secret), folder))
        else:
            found.append(identity.save(new, folder, secret)[1])
    return found


@takes(RosterOptions)
def roster(
    public: Sequence[str | Path], out: str | Path, *, overwrite: bool = False, **options: Any
) -> Path:
    """Write the roster of a round: members by their public files (or folders of them)."""
    out, o = Path(out), made(RosterOptions, options)
    members = [identity.load_public(path) for path in _public_files(public)]
    head, _ = head_from(o.head)
    if head.phase() is None:
        raise UsageError(f"the head {o.head} is solved: there is nothing left to gather")
    new = Roster.new(members, binding(head), o.threshold, o.max_rows)
    if out.exists() and not overwrite:
        _check_same(out, new)
        return out
    save_roster(out, new, overwrite)
    log.info("roster: %s; every member compares this digest by another way", new.digest())
    return out


def _public_files(paths: Sequence[str | Path]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.glob(f"*{PUBLIC}")) if path.is_dir() else [path]
    return found


def _check_same(out: Path, new: Roster) -> None:
    """Another run of the same command: the roster stays, with its round."""
    try:
        there = load_roster(out)
    except AflError as error:
        raise OutputExistsError(f"{out} exists and is no roster ({error})") from None
    ours, theirs = ({**r.as_dict(), "round": ""} for r in (new, there))
    where = difference(theirs, ours)
    if where:
        raise OutputExistsError(
            f"{out} exists and is another roster: {where}; choose another -o, or use --overwrite"
        )
