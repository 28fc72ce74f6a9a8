"""Commands of sessions: keys new; session new, serve, join, status, leave, report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..cli._console import command, print_json, say, say_lines, tell
from ..errors import InputError, UsageError

if TYPE_CHECKING:
    from .agreement import Agreement

Url = Annotated[
    str, typer.Argument(help="shared storage: a directory, sftp://, s3:// or webdav://")
]
Key = Annotated[Path, typer.Option(help="your private key, from keys new or ssh-keygen")]
Data = Annotated[Path, typer.Option(help="feature file (.h5), or a table as import reads it")]
Label = Annotated[str | None, typer.Option(help="column with the labels of a table")]
Ids = Annotated[str | None, typer.Option(help="column with the row ids of a table")]
Once = Annotated[bool, typer.Option("--once", help="do what can be done now, then exit")]
Poll = Annotated[float, typer.Option(help="seconds between two looks at the shared storage", min=0)]
Out = Annotated[Path, typer.Option("--out", "-o", help="directory of your part of the session")]
Passphrase = Annotated[Path | None, typer.Option(help="file whose first line is the passphrase")]
session, keys = (
    typer.Typer(no_args_is_help=True, help=text)
    for text in (
        "Set up and run a federation of sites that are apart.",
        "Create the keys of members and server.",
    )
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(keys, name="keys")
    app.add_typer(session, name="session")


def added(group: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose errors are one paragraph and an exit code."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(*args: Any, **options: Any) -> None:
            with command():
                function(*args, **options)

        return group.command(name)(run)

    return add


@added(keys, "new")
def keys_new(
    names: Annotated[list[str], typer.Argument(help="A-Z, a-z, 0-9, '.', '_' and '-'")],
    out: Annotated[Path, typer.Option("--out", "-o", help="directory of the keys")] = Path(),
    passphrase_file: Passphrase = None,
) -> None:
    """Generate a key pair per name: NAME stays private, NAME.pub goes to the others."""
    from .keys import new

    for name in names:
        say(new(name, out, _first_line(passphrase_file)))


@added(session, "new")
def new(
    out: Out,
    members: Annotated[list[Path], typer.Option(help="public keys, or a directory of them")],
    server: Annotated[Path, typer.Option(help="public key of the server")],
    data: Annotated[Path, typer.Option(help="rows that have the agreed features and classes")],
    head: Annotated[str, typer.Option(help="name of a head, or a head file")] = "linear",
    y: Label = None,
    row_ids: Ids = None,
    classes: Annotated[
        Path | None, typer.Option(help="class names of a table, one per line")
    ] = None,
    scale: Annotated[str, typer.Option(help="none, or standard: mean 0, deviation 1")] = "none",
    max_value: Annotated[float, typer.Option(help="largest raw feature, with --scale")] = 65536.0,
    fraction_bits: Annotated[int, typer.Option(help="of features of a table")] = 9,
    protection: Annotated[str, typer.Option(help="masked, or signed (server reads)")] = "masked",
    threshold: Annotated[int | None, typer.Option(help="members that must stay")] = None,
    min_rows: Annotated[int, typer.Option(help="minimum rows per member")] = 0,
    max_rows: Annotated[int | None, typer.Option(help="maximum rows per member")] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="count test rows at the end")
    ] = False,
    min_cell: Annotated[int, typer.Option(help="minimum test rows of a class, or none")] = 10,
    bins: Annotated[str | None, typer.Option(help="LO:HI:COUNT of the scores of test rows")] = None,
    dp_epsilon: Annotated[float | None, typer.Option(help="noise: ε of one row")] = None,
    dp_delta: Annotated[float | None, typer.Option(help="noise: δ of one row")] = None,
    clip: Annotated[float | None, typer.Option(help="noise: maximum norm of a row")] = None,
    colluding: Annotated[int, typer.Option(help="noise: members who may work together")] = 0,
) -> None:
    """Create a session: what all sites agree on. Prints the code to read out by telephone."""
    from . import commands

    budget = {"epsilon": dp_epsilon, "delta": dp_delta, "clip": clip}
    noisy = any(v is not None for v in budget.values())
    if noisy and None in budget.values():
        raise UsageError("Noise needs --dp-epsilon, --dp-delta and --clip together")
    if max_rows is None and not noisy:
        raise UsageError(
            "Pass --max-rows, near the truth: who claims more rows than it has would "
            "outweigh the others"
        )
    if scale not in ("none", "standard"):
        raise UsageError(f"Invalid --scale {scale!r}. Expected none or standard")
    agreed = commands.new(
        members,
        server,
        head,
        commands.Table(data, y, row_ids),
        out,
        threshold=threshold,
        classes=classes,
        bits=fraction_bits,
        protection=protection,
        scale=_power(max_value) if scale == "standard" else None,
        evaluation={"min_cell": min_cell, "bins": bins} if evaluate else None,
        noise={**budget, "colluding": colluding} if noisy else None,
        min_rows=min_rows,
        max_rows=max_rows or 0,
    )
    _show(agreed)
    say(f"{'code':>12}  {agreed.code}")


def _power(value: float) -> int:
    if not 1 <= value < 2**30:
        raise UsageError(f"Invalid --max-value {value}. Expected 1 to 2^30")
    return math.ceil(math.log2(value))


@added(session, "serve")
def serve(
    url: Url,
    key: Key,
    out: Out,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="hours after which a step goes on without late members, who do not come back"
        ),
    ] = None,
    once: Once = False,
    poll: Poll = 5.0,
    passphrase_file: Passphrase = None,
) -> None:
    """Run the server of a session. If interrupted, rerun the same command to resume."""
    from . import commands

    server = commands.serve(url, key, out, _first_line(passphrase_file))
    server.deadline = None if deadline is None else 3600 * deadline
    tell(f"session: read this code out by telephone: {server.agreed.code}")
    _result(commands.run(server, once, poll))


@added(session, "join")
def join(
    url: Url,
    key: Key,
    data: Data,
    out: Out,
    y: Label = None,
    row_ids: Ids = None,
    test: Annotated[Path | None, typer.Option(help="test rows, for an evaluation")] = None,
    approve: Annotated[str | None, typer.Option(help="the code, as you heard it")] = None,
    allow: Annotated[str, typer.Option(help="signed: let the server read your sums")] = "masked",
    again: Annotated[
        bool, typer.Option("--again", help="allow rows that were summed in another session")
    ] = False,
    once: Once = False,
    poll: Poll = 5.0,
    passphrase_file: Passphrase = None,
) -> None:
    """Join a session as a site. Without --approve, prints what is agreed and sends nothing.

    If interrupted, rerun the same command to resume.
    """
    from . import commands
    from .session import SESSION

    word = _first_line(passphrase_file)
    if approve is None and not (out / SESSION).exists():
        _ask(url, key, word)
    member = commands.join(
        url,
        key,
        commands.Table(data, y, row_ids),
        out,
        approve=approve,
        allow=allow,
        again=again,
        test=None if test is None else commands.Table(test, y, row_ids),
        passphrase=word,
    )
    _result(commands.run(member, once, poll))


def _ask(url: str, key: Path, passphrase: bytes | None) -> None:
    """Show what would be approved, but not the code."""
    from . import commands, keys
    from .place import Place

    me, agreed = keys.load(key, passphrase), commands.fetch_session(Place(url))
    _show(agreed)
    for text in commands.newcomers(agreed, me.party):
        say(f"{'new':>12}  {text}")
    raise UsageError(
        "Nothing was sent. Ask for the code by telephone, from a person whose voice you know. If "
        "you agree to all of this, rerun with --approve CODE"
    )


@added(session, "status")
def status(
    url: Url, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """Show which round a session is in and who is waited for."""
    from . import commands
    from .place import Place
    from .status import status as look
    from .words import lines

    agreed = commands.fetch_session(place := Place(url))
    found = look(place, agreed)
    if as_json:
        print_json({**asdict(found), "agreed": dict(lines(agreed))})
    else:
        _show(agreed)
        say(found)


@added(session, "leave")
def leave(
    before: Annotated[Path, typer.Argument(help="directory of the session that is left")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the consent, or the next session")],
    without: Annotated[list[str] | None, typer.Option(help="who leaves")] = None,
    consent: Annotated[list[Path] | None, typer.Option(help="consent of a leaver")] = None,
    key: Annotated[
        Path | None, typer.Option(help="your key, if you are the one who leaves")
    ] = None,
    passphrase_file: Passphrase = None,
) -> None:
    """Leave a session (--key), or create the next one without members who left (--without)."""
    from . import commands

    if (key is None) is (without is None):
        raise UsageError("Pass --key to sign that you leave, or --without for the next session")
    if key is not None:
        say(commands.consent(before, key, out, _first_line(passphrase_file)))
        return
    agreed = commands.leave(before, without or [], consent or [], out)
    _show(agreed)
    say(f"{'code':>12}  {agreed.code}")


@added(session, "report")
def report(
    folder: Annotated[Path, typer.Argument(help="your directory of a session that is over")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="write an .html page")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="overwrite the page")] = False,
) -> None:
    """Print the costs and results of a session as JSON, or write its page."""
    from ..files.schema import SUMMARY
    from .report import page

    if out is not None:
        say(page(folder, out, overwrite))
    elif (path := folder / SUMMARY).is_file():
        print_json(json.loads(path.read_bytes()))
    else:
        raise InputError(f"{folder} holds no session that is over: it has no {SUMMARY}")


def _result(head: Path | None) -> None:
    if head is not None:
        say(head)


def _show(agreed: Agreement) -> None:
    from .words import in_words

    say_lines(f"{in_words(agreed)}\n")


def _first_line(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes().splitlines()[0]
    except (OSError, IndexError):
        raise InputError(f"{path} has no passphrase in its first line") from None
