"""Commands of sessions: keys new; session new, serve, join, status, leave, report."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ..cli._console import command, print_json, say, say_lines, tell
from ..cli.app import group_of
from ..cli.commands import Command, show_every_option
from ..errors import InputError, UsageError

if TYPE_CHECKING:
    from .agreement import Agreement


EXTRA = ("cryptography", "nacl", "bcrypt", "fsspec", "jinja2")
INSTALL = "pip install 'afltool[session]'"


class Group(typer.core.TyperGroup):
    """Commands whose errors are one paragraph and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        if {"-h", "--help", "--help-all"} & {*ctx.args}:
            return super().invoke(ctx)  # which needs no NumPy
        with command():
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                if error.name not in EXTRA:
                    raise
                raise UsageError(f"{error.name} is missing: {INSTALL}") from None


Url = Annotated[str, Argument(help="shared storage: a directory, sftp://, s3:// or webdav://")]
Key = Annotated[Path, Option(help="your private key, from keys new or ssh-keygen")]
Data = Annotated[Path, Option(help="feature file (.h5), or a table as import reads it")]
Label = Annotated[str | None, Option(help="column with the labels of a table")]
Ids = Annotated[str | None, Option(hidden=True, help="column with the row ids of a table")]
Once = Annotated[bool, Option("--once", help="do what can be done now, then exit")]
Poll = Annotated[float, Option(help="seconds between two looks at the shared storage", min=0)]
Out = Annotated[Path, Option("--out", "-o", help="directory of your part of the session")]
Passphrase = Annotated[
    Path | None, Option(hidden=True, help="file whose first line is the passphrase")
]
Every = Annotated[
    bool,
    Option("--help-all", is_eager=True, callback=show_every_option, help="show every option"),
]
session, keys = (
    typer.Typer(cls=Group, no_args_is_help=True, help=text)
    for text in (
        "Set up and run a federation of sites that are apart.",
        "Create the keys of members and server.",
    )
)
GROUPS = {"keys": keys, "session": session}


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {
        name: Command(app.info.help or "", "Federation", make=partial(group_of, name, app))
        for name, app in GROUPS.items()
    }


@keys.command("new")
def keys_new(
    names: Annotated[list[str], Argument(help="A-Z, a-z, 0-9, '.', '_' and '-'")],
    out: Annotated[Path, Option("--out", "-o", help="directory of the keys")] = Path(),
    passphrase_file: Passphrase = None,
) -> None:
    """Generate a key pair per name: NAME stays private, NAME.pub goes to the others."""
    from .keys import new

    for name in names:
        say(new(name, out, _first_line(passphrase_file)))


@session.command("new")
def new(
    out: Out,
    members: Annotated[list[Path], Option(help="public keys, or a directory of them")],
    server: Annotated[Path, Option(help="public key of the server")],
    data: Annotated[Path, Option(help="rows that have the agreed features and classes")],
    head: Annotated[str, Option(help="name of a head, or a head file")] = "linear",
    y: Label = None,
    row_ids: Ids = None,
    classes: Annotated[
        Path | None, Option(hidden=True, help="class names of a table, one per line")
    ] = None,
    scale: Annotated[str, Option(help="none, or standard: mean 0, deviation 1")] = "none",
    max_value: Annotated[
        float, Option(hidden=True, help="largest raw feature, with --scale", min=1, max=2**30)
    ] = 65536.0,
    fraction_bits: Annotated[int, Option(hidden=True, help="of features of a table")] = 9,
    protection: Annotated[str, Option(help="masked, or signed (server reads)")] = "masked",
    threshold: Annotated[int | None, Option(hidden=True, help="members that must stay")] = None,
    min_rows: Annotated[int, Option(hidden=True, help="minimum rows per member")] = 0,
    max_rows: Annotated[int, Option(help="maximum rows per member, near the truth")] = 0,
    evaluate: Annotated[bool, Option("--evaluate", help="count test rows at the end")] = False,
    groups: Annotated[
        list[str] | None, Option(hidden=True, help="group of test rows that is counted apart")
    ] = None,
    min_cell: Annotated[
        int, Option(hidden=True, help="minimum test rows of a class or a group, or none")
    ] = 10,
    bins: Annotated[
        str | None, Option(hidden=True, help="LO:HI:COUNT of the scores of test rows")
    ] = None,
    dp_epsilon: Annotated[float | None, Option(hidden=True, help="noise: ε of one row")] = None,
    dp_delta: Annotated[float | None, Option(hidden=True, help="noise: δ of one row")] = None,
    clip: Annotated[float | None, Option(hidden=True, help="noise: maximum norm of a row")] = None,
    help_all: Every = False,
    colluding: Annotated[int, Option(hidden=True, help="noise: members who may work together")] = 0,
) -> None:
    """Create a session: what all sites agree on. Prints the code to read out by telephone."""
    from . import commands

    budget = {"epsilon": dp_epsilon, "delta": dp_delta, "clip": clip}
    if (noisy := any(v is not None for v in budget.values())) and None in budget.values():
        raise UsageError("Noise needs --dp-epsilon, --dp-delta and --clip together")
    if scale not in ("none", "standard"):
        raise UsageError(f"Invalid --scale {scale!r}. Expected none or standard")
    counted = {"groups": groups or [], "min_cell": min_cell, "bins": bins}
    agreed = commands.new(
        members,
        server,
        head,
        data,
        out,
        table={"y": y, "row_ids": row_ids, "classes": classes},
        bits=fraction_bits,
        scale=math.ceil(math.log2(max_value)) if scale == "standard" else None,
        protection=protection,
        threshold=threshold,
        min_rows=min_rows,
        max_rows=max_rows,
        evaluation=counted if evaluate else None,
        noise={**budget, "colluding": colluding} if noisy else None,
    )
    _show(agreed, code=True)


@session.command("serve")
def serve(
    url: Url,
    key: Key,
    out: Out,
    deadline: Annotated[
        float | None,
        Option(help="hours after which a step goes on without late members, who do not come back"),
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
    if head := commands.run(server, once, poll):
        say(head)


@session.command("join")
def join(
    url: Url,
    key: Key,
    data: Data,
    out: Out,
    y: Label = None,
    row_ids: Ids = None,
    test: Annotated[Path | None, Option(help="test rows, for an evaluation")] = None,
    by: Annotated[str, Option(hidden=True, help="TABLE:COLUMN, the group of each test row")] = "",
    approve: Annotated[str | None, Option(help="the code, as you heard it")] = None,
    allow: Annotated[str, Option(help="signed: let the server read your sums")] = "masked",
    again: Annotated[
        bool, Option("--again", help="allow rows that were summed in another session")
    ] = False,
    once: Once = False,
    poll: Poll = 5.0,
    passphrase_file: Passphrase = None,
    help_all: Every = False,
) -> None:
    """Join a session as a site. Without --approve, prints what is agreed and sends nothing.

    If interrupted, rerun the same command to resume.
    """
    from . import commands
    from .session import SESSION

    word = _first_line(passphrase_file)
    if approve is None and not (out / SESSION).exists():
        say_lines(commands.what_is_agreed(url, key, word))
        raise UsageError(
            "Nothing was sent. Ask for the code by telephone, from a person whose voice you know. "
            "If you agree to all of this, rerun with --approve CODE"
        )
    table, code = {"y": y, "row_ids": row_ids}, {"approve": approve, "allow": allow}
    member = commands.join(url, key, data, out, word, table, test, by, again=again, **code)
    if head := commands.run(member, once, poll):
        say(head)


@session.command("status")
def status(url: Url, as_json: Annotated[bool, Option("--json", help="print JSON")] = False) -> None:
    """Show which round a session is in and who is waited for."""
    from . import commands, words
    from .place import Place

    agreed = commands.fetch_session(place := Place(url))
    found = words.status(place, agreed)
    if as_json:
        print_json({**found, "agreed": words.lines(agreed)})
    else:
        _show(agreed)
        say(found["text"])


@session.command("leave")
def leave(
    before: Annotated[Path, Argument(help="directory of the session that is left")],
    out: Annotated[Path, Option("--out", "-o", help="the consent, or the next session")],
    without: Annotated[list[str] | None, Option(help="who leaves")] = None,
    consent: Annotated[list[Path] | None, Option(help="consent of a leaver")] = None,
    key: Annotated[Path | None, Option(help="your key, if you are the one who leaves")] = None,
    passphrase_file: Passphrase = None,
) -> None:
    """Leave a session (--key), or create the next one without members who left (--without)."""
    from . import commands

    if (key is None) is (without is None):
        raise UsageError("Pass --key to sign that you leave, or --without for the next session")
    if key is not None:
        say(commands.consent(before, key, out, _first_line(passphrase_file)))
    else:
        _show(commands.leave(before, without or [], consent or [], out), code=True)


@session.command("report")
def report(
    folder: Annotated[Path, Argument(help="your directory of a session that is over")],
    out: Annotated[Path | None, Option("--out", "-o", help="write an .html page")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="overwrite the page")] = False,
) -> None:
    """Print the costs and results of a session as JSON, or write its page."""
    from .report import page, read_summary

    if out is None:
        print_json(read_summary(folder))
    else:
        say(page(folder, out, overwrite))


def _show(agreed: Agreement, code: bool = False) -> None:
    from .words import in_words

    say_lines(f"{in_words(agreed)}\n")
    if code:
        say(f"{'code':>12}  {agreed.code}")


def _first_line(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes().splitlines()[0] if path else None
    except (OSError, IndexError):
        raise InputError(f"{path} has no passphrase in its first line") from None
