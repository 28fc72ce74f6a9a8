"""Sessions of afltool, carried by Flower: its messages take the place of a shared folder.

Each turn carries files that are new in the server's folder to each node, and back. One is written
once, so what a side has under a name is never sent again, but for an empty one, which is rubbish.

--node-config of a SuperNode has: key, data, approve (the code, as it was heard), and folder (of
this site; its part of the place lies in folder/place). Optional: afltool (the executable), and
`OPTIONAL`, as `afltool session join` has them.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from logging import ERROR, INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

NAMES = re.compile(r"session\.json|\d{3,}-[a-z]+-[A-Za-z0-9][A-Za-z0-9._-]*")
NEEDED = ("key", "data", "approve")
OPTIONAL = ("y", "row-ids", "test", "by", "allow", "passphrase-file")
client = ClientApp()
server = ServerApp()


def names_in(place: Path) -> set[str]:
    """The files of a session in a place."""
    files = (p for p in place.glob("*") if NAMES.fullmatch(p.name) and p.is_file())
    return {p.name for p in files if p.stat().st_size}


def packed(place: Path, names: Iterable[str], code: int = 0) -> RecordDict:
    """Files as arrays of bytes, which Flower sends in pieces, beside all names of the place."""
    files = {name: Array(np.fromfile(place / name, np.uint8)) for name in sorted(names)}
    about = ConfigRecord({"have": sorted(names_in(place)), "code": code})
    return RecordDict({"files": ArrayRecord(files), "place": about})


def unpacked(content: RecordDict, place: Path) -> set[str]:
    """Write the files of a message that are not there yet; returns the names its sender has."""
    files = content.array_records["files"]
    if wrong := [name for name in files if not NAMES.fullmatch(name)]:
        raise ValueError(f"a message has the file {wrong[0]!r}: no file of a session")
    place.mkdir(parents=True, exist_ok=True)
    for name in files.keys() - names_in(place):
        draft = place / f".{name}.partial"  # half a file would be there, and never sent again
        files[name].numpy().tofile(draft)
        draft.replace(place / name)
    return set(content.config_records["place"]["have"])


def session(afltool: str, verb: str, place: Path, words: Mapping[str, object]) -> tuple[int, str]:
    """One turn of `afltool session serve` or `join`; its exit code, and what it said."""
    asked = [word for name, value in words.items() if value for word in (f"--{name}", str(value))]
    command = [afltool, "session", verb, str(place), "--once", *asked]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


@client.query("turn")
def turn(message: Message, context: Context) -> Message:
    """Of a site: take what has come, do what can be done, answer with what the server lacks."""
    site = {name: str(value) for name, value in context.node_config.items()}
    if absent := [name for name in (*NEEDED, "folder") if name not in site]:
        raise ValueError(f"--node-config of this SuperNode lacks {', '.join(absent)}")
    folder = Path(site["folder"]).absolute()
    place, words = folder / "place", {name: site.get(name) for name in (*NEEDED, *OPTIONAL)}
    there, words["out"] = unpacked(message.content, place), str(folder / "session")
    code, said = session(site.get("afltool", "afltool"), "join", place, words)
    # What went wrong may name files of this site, so it is said here and not to the server.
    log(ERROR if code else INFO, "afltool session join: %s", said or "nothing new")
    return Message(packed(place, names_in(place) - there, code), reply_to=message)


def take(answers: Iterable[Message], place: Path, there: dict[int, set[str]]) -> None:
    """Take what nodes have sent; ``there``: the names that each has."""
    for answer in answers:
        node = answer.metadata.src_node_id
        try:
            if answer.has_error():
                raise ValueError(answer.error.reason)
            there[node] = unpacked(answer.content, place)
            if answer.content.config_records["place"]["code"]:
                log(WARNING, "node %d: its log says what is wrong", node)
        except Exception as error:  # whatever a node may send, the others go on
            log(WARNING, "node %d has sent no answer of a session: %r", node, error)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Turns of the server until the session has ended; what is lost is sent with the next one."""
    o, said, there = context.run_config, "", dict[int, set[str]]()
    folder, again = Path(str(o["session"])).absolute(), float(o["again"])
    if not (folder / "session.json").exists():
        raise ValueError(f"no {folder}/session.json: give session= in --run-config (README.md)")
    place = Path(f"{folder}-place")
    words = {"key": o["key"], "deadline": o["deadline"], "out": folder}
    while len(list(grid.get_node_ids())) < int(o["sites"]):
        time.sleep(1)
    while True:
        before, (code, said) = said, session(str(o["afltool"]), "serve", place, words)
        if code:
            raise RuntimeError(f"afltool session serve ended with {code}: {said}")
        if said != before:
            log(INFO, "%s", said)
        if (folder / "summary.json").exists():
            return
        names, nodes = names_in(place), grid.get_node_ids()
        new = {node: packed(place, names - there.get(node, set())) for node in nodes}
        asked = [Message(one, node, "query.turn", ttl=2 * again) for node, one in new.items()]
        take(grid.send_and_receive(asked, timeout=again), place, there)
        if names_in(place) == names:  # all wait for somebody who is late
            time.sleep(again)
