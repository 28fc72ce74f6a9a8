"""What commands do beside their stage: print what it found, write several files, or look only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..options.common import STDOUT
from ..options.evaluation import Counts, Evaluate, EvaluateOrCount, Predict
from ..options.look import Diff, Found, Info, StatusOf, Store, Verify
from ._console import print_json, print_line, print_message
from .app import PARTS
from .commands import show

LONGEST = 200  # characters of a value that a line of `diff` has


def evaluate(o: EvaluateOrCount) -> None:
    """Print the figures of a head, or write them; or write counts."""
    from ..files.tables import write_json
    from ..rendering.tables import print_metrics
    from ..stages.evaluate import evaluate as stage

    if o.counts:
        from ..stages.local_stats import counts

        show(counts(o.to(Counts)))
        return
    report = stage(o.to(Evaluate))
    if o.out is not None:
        write_json(report, o.out, o.overwrite)
    if o.as_json:
        print_json(report)
    elif o.out != STDOUT:
        print_metrics(report)


def predict(o: Predict) -> None:
    """Predict; the table itself is on stdout, unless it goes into a file."""
    from ..stages.predict import predict as stage

    answers = stage(o)
    if o.out != STDOUT:
        print_json(answers) if o.as_json else print_line(o.out)


def info(o: Info) -> None:
    """Print what is in a file."""
    from ..rendering.info import print_brief
    from ..stages.inspect import info as look

    _print_metrics(look(o.file), o, o.file, print_brief)


def status(o: StatusOf) -> None:
    """Print the state of a run or a study."""
    from ..rendering.tables import print_status
    from ..runs.slurm.states import status as look

    theirs = filter(None, (status_of(o.folder) for _, status_of in PARTS.values()))
    facts, print_it = next(theirs, None) or (look(o.folder), print_status)
    _print_metrics(facts, o, o.folder, print_it)


def _print_metrics(
    facts: dict[str, Any], o: Found, source: Path, print_it: Callable[[dict[str, Any]], None]
) -> None:
    """One field for a script (a text without quotes), JSON, or a table."""
    if o.field is None:
        print_json(facts) if o.as_json else print_it(facts)
        return
    value: Any = facts
    for part in o.field.split("."):
        if not isinstance(value, dict) or part not in value:
            have = ", ".join(value) if isinstance(value, dict) else "no names"
            raise UsageError(f"{source} has no field {o.field!r}: there are {have}")
        value = value[part]
    print_line(value) if isinstance(value, str) else print_json(value, indent=None)


def verify(o: Verify) -> None:
    """Print of each file that it is intact."""
    from ..files.hdf5 import expand
    from ..stages.inspect import verify_all

    results = verify_all(expand(o.files), o.threads)
    if o.as_json:
        print_json(results)
        return
    for one in results:
        print_line(f"{one['path']}: intact, {one['kind']}, digest {one['digest']}")


def diff(o: Diff) -> None:
    """Print what differs in two files, a line a field or an array."""
    from ..stages.inspect import diff as stage

    found = stage(o)
    if o.as_json:
        print_json(found)
        return
    for one in found["differences"]:
        facts = (
            f"{name} {_words(value)[:LONGEST]}" for name, value in one.items() if name != "what"
        )
        print_line(f"{one['what']}: {'; '.join(facts)}")
    if not found["differences"]:
        print_line("no difference, but perhaps in who made them, and when")


def _words(value: Any) -> str:
    """A JSON value as a person reads it: names and values with commas between them."""
    if isinstance(value, dict):
        value = [f"{name} {_words(one)}" for name, one in value.items()]
    if isinstance(value, list):
        value = ", ".join(map(_words, value))
    return "none" if value is None else str(value) or "empty"


def store(o: Store) -> None:
    """Print what is kept, the largest files first, and what was removed."""
    from ..stages.inspect import store as stage
    from ..values.text import byte_text

    found = stage(o)
    if o.as_json:
        print_json(found)
        return
    for one in sorted(found["files"], key=lambda one: -one["bytes"]):
        print_line(f"{byte_text(one['bytes']):>9}  {one['days']:7.1f} days  {one['path']}")
    removed = f"; removed: {len(found['removed'])} files" if o.prune is not None else ""
    print_message(
        f"{found['folder']}: {len(found['files'])} files, {byte_text(found['bytes'])}{removed}"
    )
