"""Commands of keys, rosters and masks (docs/privacy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.privacy import KeysOptions, MemberOptions, RevealOptions, RosterOptions
from ._console import command
from ._options import parameters, with_options
from ._streams import say
from ._types import Out, Overwrite


def add_to(app: typer.Typer) -> None:
    keys = typer.Typer(no_args_is_help=True, help="Make the keys that a member signs and masks by.")
    keys.command("new")(command(with_options(keys_new, options=parameters(KeysOptions))))
    app.add_typer(keys, name="keys")
    app.command("roster")(command(with_options(roster, options=parameters(RosterOptions))))
    mask = typer.Typer(no_args_is_help=True, help="Steps of a round whose parts nobody sees.")
    mask.command("offer")(command(with_options(mask_offer, options=parameters(MemberOptions))))
    mask.command("reveal")(command(with_options(mask_reveal, options=parameters(RevealOptions))))
    app.add_typer(mask, name="mask")


Folder = Annotated[Path, typer.Option("--out", "-o", help="folder for the result")]
RosterFile = Annotated[Path, typer.Argument(help="roster of the round")]


def keys_new(
    names: Annotated[list[str], typer.Argument(help="names of members, as in --client NAME")],
    out: Folder,
    options: dict[str, Any],
) -> None:
    """A key pair for each name: NAME.key stays private, NAME.pub goes to the others."""
    from ..stages.keys import keys

    _print(keys(names, out, **options))


def roster(
    public: Annotated[list[Path], typer.Argument(help="public files NAME.pub, or their folder")],
    out: Out,
    options: dict[str, Any],
    overwrite: Overwrite = False,
) -> None:
    """What a federation agrees on before a round: members, threshold, head."""
    from ..stages.keys import roster as stage

    _print([stage(public, out, overwrite=overwrite, **options)])


def mask_offer(
    roster: RosterFile, out: Folder, options: dict[str, Any], overwrite: Overwrite = False
) -> None:
    """Before a round: draw fresh secrets, and write what the others need of them."""
    from ..stages.masks import mask_offer as stage

    _print(stage(roster, out, overwrite=overwrite, **options))


def mask_reveal(
    request: Annotated[Path, typer.Argument(help="what aggregate asks the survivors for")],
    out: Folder,
    options: dict[str, Any],
    overwrite: Overwrite = False,
) -> None:
    """After a round: answer the server's request, one answer a round."""
    from ..stages.masks import mask_reveal as stage

    _print(stage(request, out, overwrite=overwrite, **options))


def _print(paths: list[Path]) -> None:
    for path in paths:
        say(path)
