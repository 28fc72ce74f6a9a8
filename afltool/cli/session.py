"""Commands of sessions: one agreement for all phases of a head (docs/privacy.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.privacy import CountersignOptions, LeaveOptions, SessionOptions
from . import courier
from ._options import add, of_heads
from ._streams import say
from ._types import Overwrite, passing


def add_to(app: typer.Typer) -> None:
    session = typer.Typer(
        no_args_is_help=True,
        help="What a federation agrees on once, for all phases of a head.",
    )
    add(session, "new", session_new, head_options=of_heads)
    courier.add_to(session)
    passing(
        session, "leave", "leaving:session_leave", ("session", Path, "file of the session"),
        "Take a member out of a total, solve the head again, and write a certificate of it.",
        LeaveOptions, Folder, has_json=False,
    )  # fmt: skip
    passing(
        session, "countersign", "leaving:session_countersign",
        ("paper", Path, "the certificate that leave has written"),
        "Sign a certificate as the member that leaves.",
        CountersignOptions, has_json=False,
    )  # fmt: skip
    app.add_typer(session, name="session")


Folder = Annotated[Path, typer.Option("--out", "-o", help="folder for the result")]


def session_new(
    out: Folder,
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
