"""Stages `keys` and `roster`: who a member is, and what a federation agrees on before a round."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AflError, MismatchError, OutputExistsError, UsageError
from ..files.heads import head_from, rows_of
from ..heads.base import binding
from ..options.privacy import MASKED, SIGNED, KeysOptions, LockOptions, RosterOptions
from ..privacy import identity
from ..privacy.identity import Identity
from ..privacy.messages import without_reals
from ..privacy.protection import key_of, passphrase
from ..privacy.roster import Roster
from ..privacy.roster import load as load_roster
from ..privacy.roster import save as save_roster
from ..privacy.terms import Budget, Terms
from ..progress import log
from ..values.differences import difference
from ..values.names import KEY, PUBLIC, file_stem


def keys(names: Sequence[str], out: Path, options: KeysOptions = KeysOptions()) -> list[Path]:
    """Make a key pair for each name in the folder ``out``; returns the public files.

    NAME.key is private (mode 600) and never leaves its owner; NAME.pub goes to the others. A pair
    that is there is kept.
    """
    folder, secret = out, passphrase(options.passphrase_file)
    found = []
    for name in names:
        new = Identity.new(name)
        private = folder / f"{file_stem(name)}{KEY}"
        if private.exists():
            log.info("keys: %s is kept", private)
            found.append(identity.save_public(key_of(private, name, secret), folder))
        else:
            found.append(identity.save(new, folder, secret)[1])
    _warn_of_writers(folder)
    return found


def _warn_of_writers(folder: Path) -> None:
    """Say that others may exchange what lies in a folder: their own key, a record of a round."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o022:
        log.warning(
            "keys: others may write into %s (mode %o), so they can exchange keys and records of "
            "rounds: chmod go-w %s", folder, mode, folder,
        )  # fmt: skip


def lock_key(key: Path, out: Path, options: LockOptions) -> Path:
    """Write a private key under another passphrase, NAME.key in the folder ``out``; returns it.

    The old file stays, because no command replaces a key: move the new one into its place, where
    the folder of the rounds lies.
    """
    me = identity.load(key, passphrase(options.passphrase_file))
    private = identity.save_private(me, out, passphrase(options.new_passphrase_file))
    move = shlex.join(["mv", str(private), str(key)])
    log.info("keys lock: now put it in the place of the old one: %s", move)
    return private


def roster(
    public: Sequence[Path], out: Path, options: RosterOptions, *, overwrite: bool = False
) -> Path:
    """Write the roster of a round: members by their public files (or folders of them)."""
    o = options
    members = [identity.load_public(path) for path in _public_files(public)]
    head, header = head_from(o.head)
    if head.phase() is None:
        raise UsageError(f"the head {o.head} is solved: there is nothing left to gather")
    bound = binding(head)
    new = Roster.new(
        members,
        bound,
        o.threshold,
        o.max_rows,
        terms=_terms(o, bound, header),
        server=None if o.server is None else identity.load_public(o.server),
        colluding=o.colluding,
    )
    if out.exists() and not overwrite:
        _check_same(out, new)
        return out
    _tell(load_roster(save_roster(out, new, overwrite)))
    return out


def _terms(o: RosterOptions, head: Mapping[str, Any], header: Mapping[str, Any] | None) -> Terms:
    """What the roster asks of every member's statistics."""
    of_head = {k: header[k] for k in ("space", "classes") if header and header[k]}
    given = {} if o.space is None else rows_of(o.space).as_dict()
    own = {k: given[k] for k in of_head} if given else of_head
    if where := difference(own, of_head, f"in {o.space}", f"in {o.head}"):
        raise MismatchError(f"--space {o.space} is not what the head {o.head} is bound to: {where}")
    rows = {"space": None, "classes": None, **given, **of_head}
    noise = Budget.of(o)
    if noise is not None:
        from ..privacy.differential import check_head

        dtype = (rows["space"] or {}).get("dtype", "int16")
        check_head(head["name"], head["phase"], head["options"], dtype)
    classes = rows["classes"] and tuple(rows["classes"])
    mode = o.protection or (SIGNED if o.server is None else MASKED)
    return Terms(mode, noise, without_reals(rows["space"]), classes or None)


def _tell(roster: Roster) -> None:
    """What is agreed, and what that means for members."""
    n, t, terms = len(roster.members), roster.threshold, roster.terms
    log.info("roster: %s; every member compares this digest over another channel", roster.digest)
    log.info(
        "roster: statistics leave their members %s%s; %s",
        terms.mode,
        f" with noise, {terms.noise}" if terms.noise else ", without noise",
        "all have features of one space" if terms.space else "it names no feature space (--space)",
    )
    if not terms.masked:
        return
    log.info(
        "roster: %d of %d members must stay until the end, so %s may drop out; whoever has masked "
        "cannot leave the sum later",
        t,
        n,
        n - t or "nobody",
    )
    if t == 2:
        log.warning(
            "roster: with a threshold of 2 the sum may be of two members, each of whom then knows "
            "the other's statistics: total less its own"
        )
    log.info(
        "roster: next, each member: afltool mask offer %s --key NAME.key -o offers/",
        roster.path.name,
    )


def _public_files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob(f"*{PUBLIC}")) if path.is_dir() else [path]
    return found


def _check_same(out: Path, new: Roster) -> None:
    """Another run of the same command: the roster stays, with its round."""
    try:
        there = load_roster(out)
    except AflError as error:
        raise OutputExistsError(f"{out} exists and is not a roster ({error})") from None
    ours, theirs = ({**r.as_dict(), "round": ""} for r in (new, there))
    where = difference(theirs, ours, "in the file", "now")
    if where:
        raise OutputExistsError(
            f"{out} exists and is another roster: {where}; choose another -o, or use --overwrite"
        )
