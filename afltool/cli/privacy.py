"""Commands of keys, rosters and masks (docs/privacy.md)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from ..options.privacy import KeysOptions, LockOptions, MemberOptions, RevealOptions, RosterOptions
from ._options import Folder, passing

#: Of private steps there is nothing to be shown as JSON, and of some nothing to be replaced.
quiet = partial(passing, out=Folder, writes_json=False)
once = partial(quiet, overwrites=False)


def add_to(app: typer.Typer) -> None:
    keys = typer.Typer(
        no_args_is_help=True, help="Make the keys with which a member signs and masks."
    )
    once(
        keys,
        "new",
        {"names": (list[str], "names of members, as in --client NAME")},
        "Make a key pair for each name: NAME.key stays private, NAME.pub goes to the others.",
        KeysOptions,
        stage="keys:keys",
    )
    once(
        keys,
        "lock",
        {"key": "private key NAME.key"},
        "Write a private key under another passphrase into a folder; the old file stays.",
        LockOptions,
        stage="keys:lock_key",
    )
    app.add_typer(keys, name="keys")
    passing(
        app,
        "roster",
        {"public": (list[Path], "public files NAME.pub, or their folder")},
        "Write the roster of a round, on which all agree: members, threshold, head, protection. "
        "Under masks all but the threshold may drop out, and nobody leaves the sum later.",
        RosterOptions,
        stage="keys:roster",
        writes_json=False,
    )
    mask = typer.Typer(
        no_args_is_help=True,
        help="Steps of a round under masks, in which the server learns only the sum.",
    )
    quiet(
        mask,
        "offer",
        {"roster": "roster of the round"},
        "Before a round: draw new secrets, and write the offer, which the others need to mask.",
        MemberOptions,
        stage="masks:mask_offer",
    )
    quiet(
        mask,
        "reveal",
        {"request": "the request that aggregate wrote"},
        "After a round: answer the server's request; a member answers one request a round.",
        RevealOptions,
        stage="masks:mask_reveal",
    )
    once(
        mask,
        "forget",
        {"roster": "roster of the round"},
        "Give a round up: its secrets are deleted, and no step of it is possible any more.",
        MemberOptions,
        stage="masks:mask_forget",
        out=None,
    )
    app.add_typer(mask, name="mask")
