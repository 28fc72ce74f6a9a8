"""The server of a session over Flower: turns of `afltool session serve`, and messages between them.

A turn asks every node that is there, and takes the answers that come in time. A message may be lost
with a SuperNode that is killed, and an answer may come too late: what a side lacks is sent with the
next turn. The session's own threshold and deadline decide without whom it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Context, Message
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from .courier import names_in, packed, session, unpacked

app = ServerApp()


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


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Turns until the session has ended."""
    o, said, there = context.run_config, "", dict[int, set[str]]()
    folder, again = Path(str(o["session"])).absolute(), float(o["again"])
    if not (folder / "session.json").exists():
        raise ValueError(f"no {folder}/session.json: give session= in --run-config (README.md)")
    place = Path(str(o["place"] or f"{folder}-place")).absolute()
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
