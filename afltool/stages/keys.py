"""Stages `keys`, `roster`, `session_new`: who a member is, and what a federation agrees on."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import MismatchError, UsageError
from ..files.atomic import link_or_copy
from ..files.heads import head_from, rows_of
from ..files.session_folder import SessionFolder
from ..heads.base import Head, binding
from ..options.privacy import (
    MASKED,
    SIGNED,
    KeysOptions,
    LockOptions,
    RosterOptions,
    SessionOptions,
)
from ..options.shared import SpaceOptions
from ..privacy import identity
from ..privacy.identity import Identity
from ..privacy.messages import without_reals
from ..privacy.protection import key_of, passphrase
from ..privacy.roster import Roster
from ..privacy.session import Session
from ..privacy.terms import Budget, Terms
from ..progress import log
from ..values.names import COUNTS, KEY, PUBLIC, file_stem
from ..values.text import difference
from ._agreeing import agree
from .stage import STAGES


def keys(names: Sequence[str], out: Path, options: KeysOptions = KeysOptions()) -> list[Path]:
    """Make a key pair for each name in the folder ``out``; returns the public files.

    NAME.key is private (mode 600) and never leaves its owner; NAME.pub goes to the others. A pair
    that is there is kept.
    """
    secret, paths = passphrase(options.passphrase_file), []
    for name in names:
        me = Identity.new(name)
        private = out / f"{file_stem(name)}{KEY}"
        if private.exists():
            log.info("keys: %s is kept", private)
            me = key_of(private, name, secret)
        else:
            identity.save_private(me, out, secret)
        paths.append(identity.save_public(me, out))
    mode = stat.S_IMODE(out.stat().st_mode)
    if mode & 0o022:
        log.warning(
            "keys: others may write into %s (mode %o), so they can exchange keys and records of "
            "rounds: chmod go-w %s",
            out,
            mode,
            out,
        )
    return paths


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
    return agree(_agreed(public, head, header, options), out, overwrite)


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

    def place_head() -> None:
        if header is not None:
            link_or_copy(Path(o.head), folder.head(1), "head")
        else:
            how: dict[str, Any] = {"head_options": head_options, "overwrite": overwrite}
            space, place = SpaceOptions(space=o.space), folder.head(1)
            STAGES["head"].make({"name": o.head}, space, place, **how)

    return agree(new, folder.session, overwrite, place_head)


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
