"""Commands of keys, rosters and masks (docs/privacy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options.privacy import KeysOptions, LockOptions, MemberOptions, RevealOptions, RosterOptions
from ._options import add
from ._streams import say
from ._types import Folder, passing


def add_to(app: typer.Typer) -> None:
    keys = typer.Typer(
        no_args_is_help=True, help="Make the keys with which a member signs and masks."
    )
    add(keys, "new", keys_new)
    add(keys, "lock", keys_lock)
    app.add_typer(keys, name="keys")
    passing(
        app,
        "roster",
        "keys:roster",
        ("public", list[Path], "public files NAME.pub, or their folder"),
        "Write the roster of a round, on which all agree: members, threshold, head, protection. "
        "Under masks all but the threshold may drop out, and nobody leaves the sum later.",
        RosterOptions,
        has_json=False,
    )
    mask = typer.Typer(
        no_args_is_help=True,
        help="Steps of a round under masks, in which the server learns only the sum.",
    )
    passing(
        mask, "offer", "masks:mask_offer", ("roster", Path, "roster of the round"),
        "Before a round: draw new secrets, and write the offer, which the others need to mask.",
        MemberOptions, Folder, has_json=False,
    )  # fmt: skip
    passing(
        mask, "reveal", "masks:mask_reveal", ("request", Path, "the request that aggregate wrote"),
        "After a round: answer the server's request; a member answers one request a round.",
        RevealOptions, Folder, has_json=False,
    )  # fmt: skip
    add(mask, "forget", mask_forget)
    app.add_typer(mask, name="mask")


def keys_new(
    names: Annotated[list[str], typer.Argument(help="names of members, as in --client NAME")],
    out: Folder,
    options: KeysOptions,
) -> None:
    """Make a key pair for each name: NAME.key stays private, NAME.pub goes to the others."""
    from ..stages.keys import keys

    for path in keys(names, out, options):
        say(path)


def keys_lock(
    key: Annotated[Path, typer.Argument(help="private key NAME.key")],
    out: Folder,
    options: LockOptions,
) -> None:
    """Write a private key under another passphrase into a folder; the old file stays."""
    from ..stages.keys import lock_key

    say(lock_key(key, out, options))


def mask_forget(
    roster: Annotated[Path, typer.Argument(help="roster of the round")], options: MemberOptions
) -> None:
    """Give a round up: its secrets are deleted, and no step of it is possible any more."""
    from ..stages.masks import mask_forget as stage

    for folder in stage(roster, options):
        say(folder)
