"""What counts as survived: the same result or a documented refusal, in bounded time and memory."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from afltool.cli.app import app
from afltool.errors import AflError
from afltool.files.features import open_features
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head
from afltool.files.partitions import load_partition
from afltool.files.statistics import load_statistics
from afltool.values.arrays import canonical_json

COMMAND = Path(sys.executable).with_name("afltool")
SECONDS = 60  # of one try; more is a hang
MEGABYTES = 1000  # of any process of the campaign; more is too much
REFUSALS = (2, 3, 4, 5)  # exit codes that a message goes with


class Hang(BaseException):
    """A try that did not end."""


@dataclass
class Bench:
    """Counts tries of one fault; a failure says what was tried and what came of it."""

    tries: int = 0
    refused: int = 0
    harmless: int = 0
    failures: list[str] = field(default_factory=list)
    before: int = field(default_factory=lambda: memory(resource.RUSAGE_SELF))

    def attempt(self, what: str, work: Callable[[], Any], expected: Any = ...) -> None:
        """``work`` gives ``expected`` (... for anything) or raises an `AflError`."""
        self.tries += 1
        signal.signal(signal.SIGALRM, _hang)
        signal.alarm(SECONDS)
        try:
            found = work()
        except AflError as error:
            good = error.exit_code in REFUSALS and len(str(error)) > 20
            self._count(good, what, f"exit code {error.exit_code}: {error}", refused=True)
        except (Exception, Hang) as error:
            self._count(False, what, f"{type(error).__name__}: {error}")
        else:
            self._count(expected in (..., found), what, f"another result: {str(found)[:200]}")
        finally:
            signal.alarm(0)

    def command(
        self, what: str, args: list[Any], result: Callable[[], Any] = lambda: None,
        expected: Any = ..., codes: tuple[int, ...] = REFUSALS, **options: Any,
    ) -> int:  # fmt: skip
        """The installed command in a process of its own; its exit code."""
        self.tries += 1
        try:
            done = installed(args, **options)
        except subprocess.TimeoutExpired:
            self._count(False, what, f"still running after {SECONDS} s")
            return -1
        self._judge(what, done.returncode, done.stdout, done.stderr, codes, result, expected)
        return done.returncode

    def inside(
        self, what: str, args: list[Any], result: Callable[[], Any] = lambda: None,
        expected: Any = ...,
    ) -> int:  # fmt: skip
        """The command in this process: as `command`, a hundred times faster."""
        self.tries += 1
        signal.signal(signal.SIGALRM, _hang)
        signal.alarm(SECONDS)
        try:
            done = CliRunner().invoke(app, [str(a) for a in args])
        except Hang:
            self._count(False, what, f"still running after {SECONDS} s")
            return -1
        finally:
            signal.alarm(0)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            self._count(False, what, f"{type(done.exception).__name__}: {done.exception}")
            return -1
        self._judge(what, done.exit_code, done.stdout, done.stderr, REFUSALS, result, expected)
        return done.exit_code

    def _judge(
        self, what: str, code: int, out: str, said: str, codes: tuple[int, ...],
        result: Callable[[], Any], expected: Any,
    ) -> None:  # fmt: skip
        if "Traceback" in said:
            self._count(False, what, said[-300:])
        elif code == 0:
            found = result()
            self._count(expected in (..., found), what, f"another result: {str(found)[:200]}")
        else:
            good = code in codes and len(said.strip()) > 20 and out == ""
            self._count(good, what, f"exit code {code}: {said[-300:]}", refused=True)

    def _count(self, good: bool, what: str, found: str, refused: bool = False) -> None:
        if not good:
            self.failures.append(f"{what}: {found}")
        elif refused:
            self.refused += 1
        else:
            self.harmless += 1

    def report(self) -> dict[str, Any]:
        """The counts, and the most memory that any process took."""
        own, most = memory(resource.RUSAGE_SELF), memory(resource.RUSAGE_CHILDREN)
        if own > self.before:  # else the most was before, where all tests were collected
            most = max(most, own)
        if most > MEGABYTES * 1000:
            self.failures.append(f"a process took {most / 1000:.0f} MB")
        return {**vars(self), "megabytes": round(most / 1000)}


def memory(who: int) -> int:
    """The most that this process, or any that has ended, took, in kB."""
    return resource.getrusage(who).ru_maxrss


def _hang(*_: Any) -> None:
    raise Hang(f"still running after {SECONDS} s")


def installed(args: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed command to its end, with a limit of time."""
    return subprocess.run(
        [str(COMMAND), *map(str, args)], capture_output=True, text=True, timeout=SECONDS,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options,
    )  # fmt: skip


def content(path: Path) -> str:
    """SHA-256 of all that a program can learn from a file, read as the stages read it."""
    header = read_header(path)
    kind = header["kind"]
    seen: list[Any] = [header]
    if kind == "features":
        sha = hashlib.sha256()
        with open_features(path) as rows:
            for start, values in rows.iter_stored():
                sha.update(values.tobytes() + rows.labels[start : start + len(values)].tobytes())
            seen += [sha.hexdigest(), [i.decode() for i in rows.row_ids.tolist()]]
    elif kind == "partition":
        p = load_partition(path)
        seen += [p.digest(), p.classes, p.scheme, p.client.tolist(), p.effective_labels.tolist()]
    elif kind == "statistics":
        s = load_statistics(path)
        seen += [s.digest(), s.rows, sorted(str(c) for c in s.clients.items())]
        seen += [[name, a.tolist()] for name, a in sorted(s.arrays.items())]
    else:
        head, _ = load_head(path)
        seen += [[name, a.tolist()] for name, a in sorted(head.state_dict().items())]
    return hashlib.sha256(canonical_json(seen).encode()).hexdigest()
