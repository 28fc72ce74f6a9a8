"""Commands of sessions: keys new; session new, serve, join, status, leave, report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..cli.commands import Command, first_line, show
from ..errors import UsageError
from ..options.base import Holds, Options, Writes, option
from ..options.common import Output
from ..options.features import NamedRows
from ..plugins import import_object, install

EXTRA = ("cryptography", "nacl", "bcrypt", "fsspec")
Out = Annotated[Path, Writes()]
Protection = Literal["masked", "signed"]
URL = "shared storage: a directory, sftp://, s3:// or webdav://"
DATA = "feature file (.h5), or a table that import reads"
PART = "your directory of the session"


class Verb(Options):
    """Of every command."""

    PRINTS = "federation.cli:carry_out"


@dataclass(frozen=True, kw_only=True)
class Locked(Verb):
    """Of every command that may need a passphrase."""

    passphrase_file: Path | None = option(None, "file with the passphrase in line 1")


@dataclass(frozen=True)
class NewKeys(Locked):
    """Generate a key pair per name: NAME stays private, NAME.pub goes to the others."""

    names: tuple[str, ...] = Field(description="A-Z, a-z, 0-9, '.', '_' and '-'")
    out: Out = option(Path(), "output directory")


@dataclass(frozen=True, kw_only=True)
class NewSession(Verb, NamedRows):
    """Create a session: what all sites agree on. Prints the code to read out by telephone."""

    COMMON: ClassVar = frozenset(
        {"members", "server", "data", "out", "head", "y", "scale", "protection", "evaluate"}
    )

    members: tuple[Path, ...] = Field(description="public keys, or a directory of them")
    server: Path = Field(description="public key of the server")
    data: Path = Field(description=DATA)
    out: Out = Field(description=PART)
    head: Annotated[str, Holds()] = option("linear", "name of a head, or a head file")
    classes: Path | None = option(None, "class names of a table, one per line")
    scale: Literal["none", "standard"] = option("none", "to mean 0 and deviation 1")
    max_value: float = option(65536.0, "maximum of |raw feature|", ge=1, le=2**30)
    fraction_bits: int = option(9, "fraction bits of a table's features")
    protection: Protection = option("masked", "signed: the server can read your sums")
    threshold: int | None = option(None, "members needed to finish a round")
    min_rows: int = option(0, "minimum rows per member")
    max_rows: int = option(0, "maximum rows per member; choose it near the true number")
    evaluate: bool = option(False, "evaluate on test rows at the end")
    groups: tuple[str, ...] = option((), "test group that is evaluated separately")
    min_cell: int = option(10, "minimum test rows per class or group, or none")
    dp_epsilon: float | None = option(None, "differential privacy: ε per row")
    dp_delta: float | None = option(None, "differential privacy: δ per row")
    clip: float | None = option(None, "differential privacy: clip rows to this norm")
    colluding: int = option(0, "differential privacy: maximum colluding members")

    def check(self) -> None:
        super().check()
        budget = self.dp_epsilon, self.dp_delta, self.clip
        if None in budget and budget != (None, None, None):
            raise UsageError("Noise needs --dp-epsilon, --dp-delta and --clip together")
        for name, other in (("colluding", "dp_epsilon"), ("max_value", "scale"),
                            ("groups", "evaluate"), ("min_cell", "evaluate")):  # fmt: skip
            self.needs(name, other)


@dataclass(frozen=True, kw_only=True)
class Party(Locked):
    """What server and members have."""

    url: str = Field(description=URL, kw_only=False)
    key: Path = Field(description="your private key, from keys new or ssh-keygen")
    out: Out = Field(description=PART)
    once: bool = option(False, "do what is possible now, then exit")
    poll: float = option(5.0, "seconds between polls of the storage", ge=0)


@dataclass(frozen=True, kw_only=True)
class Serve(Party):
    """Run the server of a session. If interrupted, rerun the same command to resume."""

    deadline: float | None = option(None, "hours that a step waits for members", ge=0)


@dataclass(frozen=True, kw_only=True)
class Join(Party, NamedRows):
    """Join a session as a site. Without --approve, prints what is agreed and sends nothing.

    If interrupted, rerun the same command to resume.
    """

    COMMON: ClassVar = frozenset(
        {"key", "data", "out", "y", "test", "approve", "allow", "again", "once", "poll"}
    )

    data: Path = Field(description=DATA)
    test: Path | None = option(None, "test rows for the evaluation")
    group_by: str = option("", "group of each test row, as TABLE:COLUMN")
    approve: str | None = option(None, "the code that the members compared")
    allow: Protection = option("masked", "signed: allow the server to read your sums")
    again: bool = option(False, "allow rows that were summed in another session")


@dataclass(frozen=True)
class Status(Verb):
    """Show what is agreed, which round a session is in and who is waited for."""

    url: str = Field(description=URL)


@dataclass(frozen=True, kw_only=True)
class Leave(Locked):
    """Leave a session (--key), or create the next one without members who left (--without)."""

    folder: Path = Field(description=PART, kw_only=False)
    out: Out = Field(description="file of the consent, or directory of the next session")
    without: tuple[str, ...] = option((), "members that leave")
    consent: tuple[Path, ...] = option((), "consent of a leaving member")
    key: Path | None = option(None, "your private key, if you leave")

    def check(self) -> None:
        if (self.key is None) is (self.without == ()):
            raise UsageError("Pass --key to sign that you leave, or --without for the next session")


@dataclass(frozen=True)
class Report(Verb, Output):
    """Print the costs and results of a session as JSON, or write its page."""

    folder: Path = Field(description=PART)
    out: Annotated[Path | None, Writes()] = option(None, "write an .html page")


Verbs = dict[str, type[Options]]
GROUPS: dict[tuple[str, str], Verbs] = {
    ("keys", "create key pairs for members and server"): {"new": NewKeys},
    ("session", "set up and run a federation across sites"): {
        "new": NewSession,
        "serve": Serve,
        "join": Join,
        "status": Status,
        "leave": Leave,
        "report": Report,
    },
}
FUNCTIONS = {"NewKeys": "new_keys", "NewSession": "create"}  # others are called as their class


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {
        name: Command(about, "Federation", inside=partial(_verbs, of))
        for (name, about), of in GROUPS.items()
    }


def _verbs(of: Verbs, _: str) -> dict[str, Command]:
    return {verb: Command(first_line(cls.__doc__), "Commands", cls) for verb, cls in of.items()}


def carry_out(o: Options) -> None:
    """Do what a command says, and print what comes of it."""
    name = type(o).__name__
    try:
        made = import_object(f".commands:{FUNCTIONS.get(name, name.lower())}", __package__)(o)
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise UsageError(f"{error.name} is missing: {install('session')}") from None
    if made is not None:
        show(made)
