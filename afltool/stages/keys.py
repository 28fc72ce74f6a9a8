"""Stages `keys`, `roster`, `session_new`: who a member is, and what a federation agrees on."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AflError, MismatchError, OutputExistsError, UsageError
from ..files.atomic import link_or_copy
from ..files.heads import head_from, rows_of
from ..files.session_folder import SessionFolder
from ..heads.array_names import COUNTS
from ..heads.base import Head, binding
from ..options.features import SpaceOptions
from ..options.privacy import (
    MASKED,
    SIGNED,
    KeysOptions,
    LockOptions,
    RosterOptions,
    SessionOptions,
)
from ..privacy import identity
from ..privacy.identity import Identity
from ..privacy.messages import without_reals
from ..privacy.protection import key_of, passphrase
from ..privacy.roster import Roster
from ..privacy.roster import load as load_roster
from ..privacy.roster import save as save_roster
from ..privacy.session import Session, roster_of
from ..privacy.session import load as load_session
from ..privacy.session import save as save_session
from ..privacy.terms import Budget, Terms
from ..progress import log
from ..values.json_text import difference
from ..values.names import KEY, PUBLIC, file_stem
from .stage import STAGES


def keys(names: Sequence[str], out: Path, options: KeysOptions = KeysOptions()) -> list[Path]:
    """Make a key pair for each name in the folder ``out``; returns the public files.

    NAME.key is private (mode 600) and never leaves its owner; NAME.pub goes to the others. A pair
    that is there is kept.
    """
    secret, found = passphrase(options.passphrase_file), []
    for name in names:
        me = Identity.new(name)
        private = out / f"{file_stem(name)}{KEY}"
        if private.exists():
            log.info("keys: %s is kept", private)
            me = key_of(private, name, secret)
        else:
            identity.save_private(me, out, secret)
        found.append(identity.save_public(me, out))
    mode = stat.S_IMODE(out.stat().st_mode)
    if mode & 0o022:
        log.warning(
            "keys: others may write into %s (mode %o), so they can exchange keys and records of "
            "rounds: chmod go-w %s", out, mode, out,
        )  # fmt: skip
    return found


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
    head, header = head_from(options.head)
    new = _agreed(public, head, header, options)
    if out.exists() and not overwrite:
        return _same(out, new.as_dict(), lambda: load_roster(out).as_dict(), "roster")
    _tell(load_roster(save_roster(out, new, overwrite)))
    return out


def session_new(
    public: Sequence[Path],
    out: Path,
    options: SessionOptions,
    *,
    head_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write what a federation agrees on for all phases of a head, into the folder ``out``.

    ``public``: public files of members beside those of ``options.members``. Returns the session's
    file; the first head lies beside it.
    """
    o, folder = options, SessionFolder(out)
    head, header = head_from(o.head, head_options)
    agreed = _agreed([*public, *o.members], head, header, o)
    if o.evaluate and not head.of_sums:
        raise UsageError(f"--evaluate is for a head that will be solved; {o.head} is a round alone")
    phases = (*head.phases(), *((COUNTS,) if o.evaluate else ()))
    new = Session.new(agreed, binding(head)["options"], phases, o.min_rows)
    new.check()
    path = folder.session
    if path.exists() and not overwrite:
        return _same(path, new.as_dict(), lambda: load_session(path).as_dict(), "session")
    if header is not None:
        link_or_copy(Path(o.head), folder.head(1), "head")
    else:
        space, how = SpaceOptions(space=o.space), {"head_options": head_options or {}}
        STAGES["head"].make({"name": o.head}, space, folder.head(1), overwrite=overwrite, **how)
    _tell(roster_of(save_session(path, new, overwrite)))
    return path


def _agreed(
    public: Sequence[Path], head: Head, header: Mapping[str, Any] | None, o: RosterOptions
) -> Roster:
    """The roster that public files and options make."""
    if head.phase() is None:
        raise UsageError(
            f"the head {o.head} is solved: there is nothing left to gather; for a round of its "
            f"evaluation: afltool head evaluation {o.head} -o round.h5"
        )
    bound, t = binding(head), o.threshold
    folders = (sorted(p.glob(f"*{PUBLIC}")) if p.is_dir() else [p] for p in public)
    files = [path for paths in folders for path in paths]
    return Roster.new(
        [identity.load_public(path) for path in files],
        bound,
        None if t is None else t.count,
        o.max_rows,
        terms=_terms(o, bound, header),
        server=None if o.server is None else identity.load_public(o.server),
        colluding=o.colluding,
        all=t is not None and t.count is None,
    )


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
    what = "roster" if roster.series is None else "session"
    log.info(f"{what}: {roster.compared}; every member compares this digest over another channel")
    noise = f" with noise, {terms.noise}" if terms.noise else ", without noise"
    rows = (
        "all have features of one space" if terms.space else "it names no feature space (--space)"
    )
    log.info(f"{what}: statistics leave their members {terms.mode}{noise}; {rows}")
    if roster.series is not None:
        log.info("session: it takes %d rounds at most", roster.series.rounds)
    if not terms.masked:
        return
    log.info(
        f"{what}: {t} of {n} members must stay until the end, so {n - t or 'nobody'} may drop out; "
        "whoever has masked cannot leave the sum later"
    )
    if t == 2:
        log.warning(
            f"{what}: with a threshold of 2 the sum may be of two members, each of whom then knows "
            "the other's statistics: total less its own"
        )
    offer = f"afltool mask offer {roster.path.name} --key NAME.key -o offers/"
    by_hand = "" if roster.series is None else "afltool session serve, docs/sessions.md; by hand: "
    log.info("%s: next, %seach member: %s", what, by_hand, offer)


def _same(
    out: Path, new: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], what: str
) -> Path:
    """Another run of the same command: what was agreed stays, with its random number."""
    try:
        there = load()
    except AflError as error:
        raise OutputExistsError(f"{out} exists and is not a {what} ({error})") from None
    ours, theirs = ({**found, "round": ""} for found in (new, there))
    if where := difference(theirs, ours, "in the file", "now"):
        raise OutputExistsError(
            f"{out} exists and is another {what}: {where}; choose another -o, or use --overwrite"
        )
    return out
