"""Commands that look at files: info, verify, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from ..options.common import Threads
from ._console import print_json, say, tell
from .app import Builder, Group, added, group
from .commands import (
    FIELD,
    JSON,
    Command,
    argument,
    parameters,
    show_found,
    switch,
    typer_command,
)

#: Pictures: the class of their options.
PICTURES = {
    "partition": "PartitionPicture",
    "confusion": "ConfusionPicture",
    "reliability": "ReliabilityPicture",
    "roc": "RocPicture",
    "coverage": "CoveragePicture",
    "ridge-path": "RidgePathPicture",
    "rounds": "RoundsPicture",
}


def info_command(_: Sequence[str]) -> Any:
    def call(file: Path, name: str | None, every: bool, as_json: bool) -> None:
        from ..show.brief import print_brief
        from ..show.tables import print_facts
        from ..stages.inspect import info

        if every and (as_json or name is not None):
            raise UsageError("--all is for people: leave it out with --json or --field")
        show_found(info(file), name, as_json, file, print_facts if every else print_brief)

    about = "Show what is in a file, and its digest; with --all also where it comes from."
    first = argument("file", Path, "any file that afltool wrote")
    text = "print everything: options, report, recipe, provenance …"
    return typer_command("info", about, call, [first, FIELD, switch("every", text, "--all"), JSON])


def verify_command(_: Sequence[str]) -> Any:
    def call(files: list[Path], keep_going: bool, as_json: bool, **values: Any) -> None:
        import sys

        from ..files.listing import expand
        from ..stages.inspect import check_all

        results = check_all(expand(files, sys.stdin), keep_going, Threads(**values))
        if as_json:
            print_json(results)
        for one in results:
            if one["intact"] and not as_json:
                say(f"{one['path']}: intact, {one['kind']}, digest {one['digest']}")
            elif not one["intact"]:
                tell(f"error: {one['error']}")
        damaged = sum(not one["intact"] for one in results)
        if damaged:
            raise InputError(f"{damaged} of {len(results)} files cannot be used")

    about = "Read every byte and compare every checksum and digest; stop at the first damaged file."
    first = argument("files", list[Path], "files, folders, globs, or - for stdin")
    on = switch("keep_going", "check the other files after a damaged one, too")
    return typer_command("verify", about, call, [first, on, JSON, *parameters(Threads)])


def plot_group(words: Sequence[str]) -> Group:
    about = "Draw pictures: one of a file, or of several side by side."
    return group("plot", about, partial(_pictures, words))


def _pictures(words: Sequence[str]) -> Mapping[str, Builder]:
    own = {name: Command("", "", f"evaluation:{cls}") for name, cls in PICTURES.items()}
    if not words or words[0] not in own:  # else no other part is loaded for it
        theirs = {k.split()[1]: one for k, one in added().items() if k.startswith("plot ")}
        own |= theirs
    return {name: partial(one.build, name) for name, one in own.items()}
