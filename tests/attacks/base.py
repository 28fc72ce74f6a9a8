"""What the attack scripts share: honest parties, small data, crafted messages, a verdict.

Honest parties act by the installed program alone: its public functions, its command (`afl`), or the
functions behind `session new`, `session serve` and `session join`. Attackers sign with their own
keys only; a member has the key K of its session, as members do.

Exit codes of a script: 0 the attack fails (HOLDS), 1 it succeeds (BROKEN), 2 the script does not
fit this version of the program and has to be adapted (ERROR; never read it as HOLDS).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "federation"))

import numpy as np
from parties import Near

import afltool
from afltool.cli import main as _commands  # noqa: F401  (the heads are registered)
from afltool.errors import AflError
from afltool.federation import commands, compute, keys
from afltool.federation.agreement import Agreement
from afltool.federation.cli import Join, Leave, NewSession
from afltool.federation.keys import DOMAIN, Box, canonical, name_of
from afltool.federation.ledger import Ledger
from afltool.federation.place import Place
from afltool.federation.rows import SiteRows
from afltool.federation.session import Member, Server, Waiting
from afltool.files.features import open_features
from afltool.math.softmax import BITS as LOSS_BITS

os.fsync = lambda _: None  # nothing here survives a power cut, nor has to
hashlib.scrypt = cache(hashlib.scrypt)  # the code of a session, which each of its parties asks for
AFL = (sys.executable, "-m", "afltool")
SITES = ("north", "south", "west")
FOUR = ("east", *SITES)
MB = 1 << 20


# ---------------------------------------------------------------- verdict


def run(main):
    """Call ``main(folder)`` in a temporary folder; it returns (broken, text)."""
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        os.environ["AFLTOOL_STATE"] = str(Path(folder) / "state")
        try:
            broken, text = main(Path(folder).resolve())
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print("ERROR: this script does not fit this version of the program: adapt it")
            broken = None
        os.chdir("/")
    print(f"({time.time() - begun:.0f} s)")
    if broken is None:
        sys.stdout.flush()
        os._exit(2)
    print(f"{'BROKEN' if broken else 'HOLDS'}: {text}")
    sys.stdout.flush()
    os._exit(int(broken))


def premise(holds, what):
    """What has to be so for the attack to mean anything; else the script has to be adapted."""
    if not holds:
        raise RuntimeError(f"premise: {what}")


# ---------------------------------------------------------------- the installed command


def afl(*words, ok=True, limit=110, **env):
    """The installed command; ``said`` is all that it printed."""
    done = subprocess.run(
        [*AFL, *map(str, words)], capture_output=True, text=True, timeout=limit,
        env={**os.environ, "COLUMNS": "200", **env}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    done.said = done.stdout + done.stderr
    if ok and done.returncode:
        raise RuntimeError(f"afltool {' '.join(map(str, words))}: {done.returncode}: {done.said}")
    return done


def crashed(done):
    """Whether a command that was given something bad did not end in a message."""
    return "Traceback" in done.said or done.returncode not in (2, 3, 4, 5)


class _Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextmanager
def heard():
    """What the program tells people meanwhile, a list of lines."""
    kept, log = _Kept(), logging.getLogger("afltool")
    level = log.level
    log.addHandler(kept)
    log.setLevel(logging.INFO)
    try:
        yield kept.lines
    finally:
        log.removeHandler(kept)
        log.setLevel(level)


logging.getLogger("afltool").addHandler(logging.NullHandler())
logging.getLogger("afltool").propagate = False


# ---------------------------------------------------------------- data


def clusters(n, d=6, classes=3, seed=0):
    """Rows (n, d) around a center for each class, and their labels; the first rows have each."""
    rng = np.random.default_rng([seed, n, d])
    centers = np.random.default_rng(7).normal(size=(classes, d))
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, max(n - classes, 0))])[:n]
    return centers[y] + rng.normal(size=(n, d)), y


def features(folder, name, x, y, classes=None, **how):
    """A feature file NAME.h5; ``classes``: the names of labels 0, 1, …"""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"c{i}" for i in range(int(max(y)) + 1)] if classes is None else list(classes)
    (folder / f"{name}.classes").write_text("".join(f"{one}\n" for one in names))
    np.savez(folder / f"{name}.npz", x=np.asarray(x, np.float64), y=np.array(names)[y])
    given = {"classes": folder / f"{name}.classes", "backbone": "b", **how}
    return afltool.import_embeddings(folder / f"{name}.npz", out=folder / f"{name}.h5", **given)


def of_sites(folder, names=SITES, n=40, d=6, classes=3, **how):
    """Features of each site, all with the same classes."""
    names_of = [f"c{k}" for k in range(classes)]
    return {
        name: features(folder, name, *clusters(n + i, d, classes, seed=i), names_of, **how)
        for i, name in enumerate(names)
    }


def stored(path):
    """The int16 rows and the labels of a feature file."""
    with open_features(path) as opened:
        return opened.read_stored(0, len(opened)), np.array(opened.labels)


# ---------------------------------------------------------------- a session


class Trial:
    """A session of sites over a folder; each party has a folder, a key and a ledger of its own."""

    def __init__(self, at, rows, head="linear", names=None, test=None, place="trial", new_keys=None,
                 options=None, **agreed):  # fmt: skip
        self.at, self.rows, self.names = at, rows, tuple(names or rows)
        self.place, self.test = at / "place" / place, test
        self.office, self.keys = at / "office" / place, new_keys or at / "keys"
        for name in (*self.names, "office"):
            if not (self.keys / name).exists():
                keys.new(name, self.keys)
        if options:
            head = afltool.head(head, at / f"head-{place}.h5", head_options=options)
        self.agreed = commands.new(NewSession(
            members=[self.keys / f"{name}.pub" for name in self.names],
            server=self.keys / "office.pub", head=str(head), data=rows[self.names[0]],
            out=self.office, **self.words(agreed, evaluate=bool(test))))  # fmt: skip
        self.parties = {}

    @staticmethod
    def words(agreed, evaluate):
        """Terms of an agreement as the options of `session new`."""
        given = {"max_rows": 0 if agreed.get("noise") else 1000, **agreed}
        if (counted := given.pop("evaluation", {"min_cell": 1} if evaluate else None)) is not None:
            given = {**given, "evaluate": True, **counted}
        if (m := given.pop("scale", None)) is not None:
            given = {**given, "scale": "standard", "max_value": 2.0**m}
        names = {"epsilon": "dp_epsilon", "delta": "dp_delta"}
        return given | {names.get(k, k): v for k, v in (given.pop("noise", None) or {}).items()}

    @classmethod
    def of(cls, at, rows, agreed, place, new_keys=None, names=None):
        """A session of terms that are made already."""
        self = cls.__new__(cls)
        self.at, self.rows, self.test, self.agreed = at, rows, None, agreed
        self.names = tuple(names or (p.name for p in agreed.members))
        self.place, self.office = at / "place" / place, at / "office" / place
        self.keys, self.parties = new_keys or at / "keys", {}
        self.office.mkdir(parents=True, exist_ok=True)
        (self.office / "session.json").write_bytes(agreed.text)
        return self

    def me(self, name):
        return keys.load(self.keys / name)

    def site(self, name):
        return self.at / "sites" / self.place.name / name

    def state(self, name):
        return self.at / "states" / name

    def path(self, kind, number, sender):
        """Where a message lies in the place."""
        return self.place / name_of(kind, number, sender)

    # ------------------------------------------------------------ honest parties

    @property
    def server(self):
        if "office" not in self.parties:
            self.parties["office"] = Server(Near(str(self.place)), self.office, self.agreed,
                                            self.me("office"))  # fmt: skip
        return self.parties["office"]

    def member(self, name, anew=False, kind=Member, rows=None, **how):
        """A site as `session join` makes it; ``anew``: as after a start of its process."""
        if anew or name not in self.parties:
            if kind is Member and rows is None:
                os.environ["AFLTOOL_STATE"] = str(self.state(name))
                table, test = self.rows[name], self.test and self.test[name]
                given = {"approve": self.agreed.code, "allow": self.agreed.protection,
                         "out": self.site(name), "test": test, **how}  # fmt: skip
                made = commands.member(
                    Join(str(self.place), key=self.keys / name, data=table, **given)
                )
                made.place = Near(made.place.url)
            else:
                rows = rows or SiteRows.of_files(self.agreed, self.rows[name])
                made = kind(Near(str(self.place)), self.site(name), self.agreed, self.me(name),
                            rows, Ledger(self.state(name) / "ledger"))  # fmt: skip
            self.parties[name] = made
        return self.parties[name]

    def serve(self, deadline=None):
        self.server.deadline = deadline
        return self.server.turn()

    def join(self, name, **how):
        return self.member(name, **how).turn()

    def turn(self, names=None, deadline=None):
        """The server, then sites, each once; what each waits for."""
        said = {"office": self.serve(deadline)}
        return said | {name: self.join(name) for name in (self.names if names is None else names)}

    def play(self, names=None, most=80, **how):
        """Turns until all have the head; whether they have."""
        return any(set(self.turn(names, **how).values()) == {""} for _ in range(most))

    def total(self, number):
        """The sum of a round at the server; where it cannot be opened, what is waited for."""
        try:
            return self.server.total(number)
        except Waiting as waiting:
            return str(waiting)

    def said(self, name):
        """What a party was told to pass over, in one line."""
        return " | ".join(sorted(self.parties[name]._said))

    def solved(self, name):
        one = self.parties[name]
        return one.head(one.newest_round())

    def pooled(self, *names):
        """The digest of the head of all rows of these sites in one place."""
        head = compute.first_head(self.agreed)
        while head.phase() is not None:
            blocks = [b for n in names or self.names for b in SiteRows.of_files(
                self.agreed, self.rows[n]).blocks(self.agreed, False, None, None)]  # fmt: skip
            head = compute.solve_next(head, compute.compute_statistics(self.agreed, head, blocks))
        return head.digest()

    # ------------------------------------------------------------ what a dishonest one sends

    def box(self, name):
        """What seals and opens as ``name``, with the key of the session that each member has."""
        box = Box(self.agreed.digest, self.me(name))
        box.group = next(p.box.group for p in self.parties.values() if p.box.group)
        return box

    def post(self, name, kind, number, payload, to=b""):
        """A message signed by ``name``, whatever it says."""
        data = self.box(name).seal(kind, number, payload, to)
        self.path(kind, number, name).write_bytes(data)
        return data

    def raw(self, name, kind, number, body, header=None):
        """A signed message with any body, or another header."""
        box = Box(self.agreed.digest, self.me(name))
        sha = hashlib.sha256(body).hexdigest()
        header = box._header(kind, number, name, sha) if header is None else header
        data = header + b"\n" + box.me.signing.sign(DOMAIN + header) + body
        self.path(kind, number, name).write_bytes(data)
        return data

    def opened(self, name, kind, number, sender):
        """What a message says to ``name``, who has K."""
        data = self.path(kind, number, sender).read_bytes()
        return self.box(name).open(kind, number, self.agreed.people[sender], data)


class Search:
    """Thresholds of one feature, each the next point of a softmax head that an attacker chooses,
    and the sums of the rows above each; parts of one row are that row."""

    FEATURE = 3

    def __init__(self):
        self.dead, self.trying, self.above, self.next, self.missed = set(), None, {}, None, 0

    def begin(self, gram, cross, n):
        """From the sums of the first round: all n rows, Σx, and mean and spread of the feature."""
        self.cross, every = cross.astype(np.int64), cross.sum(1)
        self.one = int(every[-1]) // n  # the constant feature, in its units
        self.above[-np.inf] = every
        mean = every[self.FEATURE] / n
        self.next = self.half(mean + 2.2 * np.sqrt(gram[self.FEATURE, self.FEATURE] / n - mean**2))

    @staticmethod
    def half(value):
        """Between two steps of a feature, so that no row is at the threshold."""
        return float(np.floor(value)) + 0.5

    def learn(self, gradient, threshold):
        """The sum over the rows above the threshold, from the gradient there."""
        found = gradient[:, 0].astype(object) + self.cross[:, 0].astype(object) * 2**LOSS_BITS
        if any(int(v) % 2**LOSS_BITS for v in found):  # a row is so near that it is between 0 and 1
            self.missed += 1
            self.dead.add(self.trying)
        else:
            self.above[threshold] = np.array([int(v) // 2**LOSS_BITS for v in found])
        self.choose()

    def parts(self):
        """Intervals of the feature: from, to, number of rows, their sum."""
        at = sorted(self.above)
        for low, high in zip(at, [*at[1:], np.inf], strict=True):
            inside = self.above[low] - self.above.get(high, 0 * self.above[low])
            yield low, high, round(inside[-1] / self.one), inside

    def choose(self):
        """Cut a part of the tail at its mean, so that both halves have rows; or take more rows."""
        tail = [p for p in self.parts() if p[0] > -np.inf and p[2] > 1]
        for low, high, n, total in sorted(tail, key=lambda p: p[0], reverse=True):
            cut, self.trying = self.half(total[self.FEATURE] / n), (low, high, n)
            if self.trying not in self.dead and low < cut < high:
                self.next = cut
                return
        body = next(p for p in self.parts() if p[0] == -np.inf)
        first = min((t for t in self.above if t > -np.inf), default=self.next)
        mean = body[3][self.FEATURE] / max(body[2], 1)
        self.trying = None
        self.next = self.half(first - (0.12 + 0.02 * self.missed) * (first - mean))

    def rows(self):
        """All features of each row that is known."""
        return {tuple(int(v) for v in p[3][:-1]) for p in self.parts() if p[2] == 1}


def patients(n=569):
    """Rows of skewed measurements, as those of tumors are."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n)
    x = np.exp(0.5 * rng.normal(size=(n, 8)) + 0.4 * y[:, None])
    return (x - x.mean(0)) / x.std(0), y


def outcome(turn):
    """What a turn ends with: ('waits' | 'stops' | 'crash', text)."""
    try:
        return "waits", turn()
    except AflError as error:
        return "stops", str(error)
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"


def triangle(packed):
    """The symmetric matrix of a packed lower triangle."""
    d = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
    full = np.zeros((d, d), packed.dtype)
    full[np.tril_indices(d)] = packed
    return full + np.tril(full, -1).T


__all__ = [
    "FOUR", "LOSS_BITS", "MB", "SITES", "AflError", "Agreement", "Box", "Leave", "Ledger", "Member", "Path", "Place",
    "Search", "Server", "SiteRows", "Trial", "afl", "afltool", "canonical", "clusters", "commands",
    "compute", "crashed", "features", "hashlib", "heard", "json", "keys", "name_of", "np", "of_sites",
    "os", "outcome", "patients", "premise", "replace", "run", "shutil", "stored", "subprocess", "sys", "time",
    "triangle",
]  # fmt: skip
