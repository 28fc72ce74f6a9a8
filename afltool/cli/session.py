"""Commands of sessions: one agreement for all phases of a head (docs/privacy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.privacy import SessionOptions
from . import courier
from ._options import add, of_heads
from ._streams import say
from ._types import Overwrite


def add_to(app: typer.Typer) -> None:
    session = typer.Typer(
        no_args_is_help=True,
        help="What a federation agrees on once, for all phases of a head.",
    )
    add(session, "new", session_new, head_options=of_heads)
    courier.add_to(session)
    app.add_typer(session, name="session")


def session_new(
    out: Annotated[Path, typer.Option("--out", "-o", help="folder of the session")],
    options: SessionOptions,
    head_options: dict[str, Any],
    public: Annotated[
        list[Path] | None, typer.Argument(help="further public files, as --members gives them")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a session: members, server, head, protection; all compare its digest, once."""
    from ..stages.keys import session_new as stage

    say(stage(public or [], out, options, head_options=head_options, overwrite=overwrite))
