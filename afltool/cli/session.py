"""Commands of sessions: one agreement for all phases of a head, and sites that are apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options.privacy import (
    CountersignOptions,
    JoinOptions,
    LeaveOptions,
    ServeOptions,
    SessionOptions,
)
from ._console import say
from ._options import FieldName, Folder, JsonOfAll, Out, Overwrite, add, of_heads, show_found
from .privacy import once, quiet

Url = Annotated[
    str, typer.Argument(help="place that all reach: a folder, file://, sftp://, s3://, webdav:// …")
]


def add_to(app: typer.Typer) -> None:
    session = typer.Typer(
        no_args_is_help=True,
        help="What a federation agrees on once, for all phases of a head.",
    )
    add(session, "new", session_new, head_options=of_heads)
    once(
        session,
        "serve",
        {},
        "Lead a session: publish it, add up what sites send, publish the head of each phase.\n\n"
        "Ends when the head is solved and all have it. Stopped at any moment, the same command "
        "goes on.",
        ServeOptions,
        stage="courier.server:serve",
        more={"url": Url},
        out=_folder("folder of session new; default: the last name of URL"),
    )
    once(
        session,
        "join",
        {},
        "Take part in a session: compute and send what the plan says comes next, until it is "
        "solved.\n\nWithout --approve it shows the digest, which all compare by telephone. Stopped "
        "at any moment, the same command goes on, and sends the same bytes.",
        JoinOptions,
        stage="courier.site:join",
        more={"url": Url},
        out=_folder("this site's folder; default: URL's last name and yours"),
    )
    quiet(
        session,
        "urls",
        {"url": (str, "place on S3 that has the session: s3://bucket/trial")},
        "Write NAME.urls, with which sites join that have no credentials: session join NAME.urls."
        "\n\nIt has signed addresses, which are good for seven days. Whoever has it may read the "
        "place and write there, so send it as you would send a password.",
        stage="courier.urls:session_urls",
        out=Out,
    )
    add(session, "status", status)
    quiet(
        session,
        "leave",
        {"session": "file of the session"},
        "Take a member out of a total, solve the head again, and write a certificate of it; or "
        "begin another session without some members, and when that has ended certify it.",
        LeaveOptions,
        stage="leaving:session_leave",
    )
    quiet(
        session,
        "countersign",
        {"paper": "the certificate that leave has written"},
        "Sign a certificate as the member that leaves.",
        CountersignOptions,
        stage="leaving:session_countersign",
        out=Out,
    )
    app.add_typer(session, name="session")


def _folder(about: str) -> Any:
    return Annotated[Path | None, typer.Option("--out", "-o", help=about)]


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


def status(
    url: Url,
    name: FieldName = None,
    as_json: JsonOfAll = False,
) -> None:
    """Show who is in a session, who has sent what, who is waited for, and since when."""
    from ..courier.party import status as look
    from ..show.tables import print_session

    show_found(look(url), name, as_json, Path(url), print_session)
