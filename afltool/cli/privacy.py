"""Commands of keys, rosters and masks (docs/privacy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.privacy import KeysOptions, MemberOptions, RevealOptions, RosterOptions
from ._options import add
from ._streams import say
from ._types import Out, Overwrite


def add_to(app: typer.Typer) -> None:
    keys = typer.Typer(
        no_args_is_help=True, help="Make the keys with which a member signs and masks."
    )
    add(keys, "new", keys_new, options=KeysOptions)
    app.add_typer(keys, name="keys")
    add(app, "roster", roster, options=RosterOptions)
    mask = typer.Typer(
        no_args_is_help=True,
        help="Steps of a round under masks, in which the server learns the sum alone.",
    )
    add(mask, "offer", mask_offer, options=MemberOptions)
    add(mask, "reveal", mask_reveal, options=RevealOptions)
    app.add_typer(mask, name="mask")


Folder = Annotated[Path, typer.Option("--out", "-o", help="folder for the result")]
RosterFile = Annotated[Path, typer.Argument(help="roster of the round")]


def keys_new(
    names: Annotated[list[str], typer.Argument(help="names of members, as in --client NAME")],
    out: Folder,
    options: dict[str, Any],
) -> None:
    """Make a key pair for each name: NAME.key stays private, NAME.pub goes to the others."""
    from ..stages.keys import keys

    _print(keys(names, out, **options))


def roster(
    public: Annotated[list[Path], typer.Argument(help="public files NAME.pub, or their folder")],
    out: Out,
    options: dict[str, Any],
    overwrite: Overwrite = False,
) -> None:
    """Write the roster of a round, on which all members agree: members, threshold, head."""
    from ..stages.keys import roster as stage

    _print([stage(public, out, overwrite=overwrite, **options)])


def mask_offer(
    roster: RosterFile, out: Folder, options: dict[str, Any], overwrite: Overwrite = False
) -> None:
    """Before a round: draw new secrets, and write the offer, which the others need to mask."""
    from ..stages.masks import mask_offer as stage

    _print(stage(roster, out, overwrite=overwrite, **options))


def mask_reveal(
    request: Annotated[Path, typer.Argument(help="the request that aggregate wrote")],
    out: Folder,
    options: dict[str, Any],
    overwrite: Overwrite = False,
) -> None:
    """After a round: answer the server's request; a member answers one request a round."""
    from ..stages.masks import mask_reveal as stage

    _print(stage(request, out, overwrite=overwrite, **options))


def _print(paths: list[Path]) -> None:
    for path in paths:
        say(path)
