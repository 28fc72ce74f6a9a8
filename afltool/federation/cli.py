"""Commands of sessions: keys new; session new, serve, join, status, leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import IncompleteError, UsageError
from .agreement import MASKED, Agreement

Url = Annotated[
    str, typer.Argument(help="place that all reach: a folder, sftp://, s3://, webdav://")
]
Key = Annotated[Path, typer.Option(help="your private key, as ssh-keygen or keys new makes it")]
Once = Annotated[bool, typer.Option("--once", help="do what can be done now and end")]
Poll = Annotated[float, typer.Option(help="seconds between two looks at the place")]
Out = Annotated[Path, typer.Option("--out", "-o", help="folder of the session")]
Passphrase = Annotated[Path | None, typer.Option(help="file whose first line is the passphrase")]
session, keys = (typer.Typer(no_args_is_help=True, help=text) for text in (
    "Sites that are apart: one agreement, one command a site.",
    "Keys with which members and the server sign."))  # fmt: skip


@keys.command("new")
def keys_new(names: list[str], out: Out, passphrase_file: Passphrase = None) -> None:
    """Make a key for each name: NAME stays private, NAME.pub goes to the others."""
    from .keys import new

    for name in names:
        typer.echo(new(name, out, _first_line(passphrase_file)))


@session.command("new")
def new(
    out: Out,
    members: Annotated[list[Path], typer.Option(help="public files, or their folder")],
    server: Annotated[Path, typer.Option(help="public file of the server")],
    head: Annotated[str, typer.Option(help="a head's name, or a head file")],
    space: Annotated[Path, typer.Option(help="a feature file: all have such features and classes")],
    protection: Annotated[str, typer.Option(help="masked or signed")] = MASKED,
    threshold: Annotated[int | None, typer.Option(help="members that must stay")] = None,
    colluding: Annotated[int, typer.Option(help="members who may work with the server")] = 0,
    dp_epsilon: float | None = None,
    dp_delta: float | None = None,
    clip: float | None = None,
    min_rows: int = 0,
    max_rows: int = 1 << 24,
) -> None:
    """Write what a federation agrees on, and show the code that all compare."""
    from . import site

    budget = {"epsilon": dp_epsilon, "delta": dp_delta, "clip": clip}
    if None in (given := [v for v in budget.values()]) and any(v is not None for v in given):
        raise UsageError("noise takes --dp-epsilon, --dp-delta and --clip")
    terms: dict[str, Any] = {"noise": None if dp_epsilon is None else budget}
    agreed = site.new(members, server, head, space, out, threshold, protection=protection,
                      colluding=colluding, min_rows=min_rows, max_rows=max_rows, **terms)  # fmt: skip
    _show(agreed)


@session.command()
def serve(url: Url, key: Key, out: Out, deadline: float | None = None, once: Once = False,
          poll: Poll = 5.0, passphrase_file: Passphrase = None) -> None:  # fmt: skip
    """Lead a session; stopped at any moment, the same command goes on.

    --deadline: hours after which a step goes on without late members, if the threshold allows it.
    """
    from .site import serve as server

    one = server(url, key, out, _first_line(passphrase_file))
    one.deadline = None if deadline is None else 3600 * deadline
    _run(one, once, poll)


@session.command()
def join(url: Url, key: Key, features: Path, out: Out, approve: str | None = None,
         allow: str = MASKED, again: bool = False, once: Once = False, poll: Poll = 5.0,
         passphrase_file: Passphrase = None) -> None:  # fmt: skip
    """Take part; without --approve CODE it shows what would be agreed to."""
    from .site import join as member

    one = member(url, key, features, out, approve, allow, again, _first_line(passphrase_file))
    _run(one, once, poll)


@session.command()
def status(url: Url, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Who is in a session, who has sent what, who is waited for."""
    from .site import status as look

    found = look(url)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for key, value in found["agreed"].items():
        typer.echo(f"{key:>12}  {value}")
    for one in found["rounds"]:
        sent = "; ".join(f"{k}: {', '.join(v)}" for k, v in one.items() if k != "round")
        typer.echo(f"{'round ' + str(one['round']):>12}  {sent}")
    if found["waiting_for"]:
        typer.echo(f"{'waiting for':>12}  {', '.join(found['waiting_for'])}")


@session.command()
def leave(before: Path, without: Annotated[list[str], typer.Option()], out: Out) -> None:
    """Begin the session of those who stay; all phases are gathered again."""
    from .site import leave as following

    _show(following(before, without, out))


def _run(party: Any, once: bool, poll: float) -> None:
    if not once:
        party.run(poll)
    elif waits := party.turn():
        raise IncompleteError(f"waiting for {waits}")


def _show(agreed: Agreement) -> None:
    typer.echo(str(agreed))
    if agreed.masked and agreed.threshold == 2:
        typer.echo("a sum of two tells each the other's numbers", err=True)


def _first_line(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes().splitlines()[0]
