"""The server of a session over Flower: turns of `afltool session serve`, and messages between them.

Each node is asked for itself, so that a site that is late or away keeps nobody else waiting; the
session's own threshold and deadline decide without whom it goes on. A message may be lost with a
SuperNode that is killed, and nobody says so if it is back soon: a node that is silent is sent one
message more, which it takes up after the first (Flower runs one at a time).
"""

from __future__ import annotations

import time
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Context, Message
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from .courier import names_in, packed, session, unpacked

app = ServerApp()


class Courier:
    """Messages between a place and the nodes: what each has, and those that are under way."""

    def __init__(self, grid: Grid, place: Path, again: float, days: float) -> None:
        self.grid, self.place, self.again, self.ttl = grid, place, again, 86400 * days
        self.there = dict[int, set[str]]()
        self.asked = dict[int, float]()  # when a node was sent the last message
        self.under_way = dict[str, int]()  # messages, and their nodes

    def ask(self) -> None:
        """Send each node what it lacks, unless it is at work."""
        names, now, busy = names_in(self.place), time.monotonic(), list(self.under_way.values())
        for node in self.grid.get_node_ids():
            new, silent = names - self.there.get(node, set()), now - self.asked.get(node, -1e9)
            if (new and node not in busy) or (silent >= self.again and busy.count(node) < 2):
                content = packed(self.place, new)
                message = Message(content, node, "query.turn", ttl=self.ttl)
                for name in filter(None, self.grid.push_messages([message])):
                    self.under_way[name], self.asked[node] = node, now

    def take(self) -> bool:
        """Take the answers that have come; whether there were any."""
        answers = list(self.grid.pull_messages(self.under_way)) if self.under_way else []
        for answer in answers:
            name = answer.metadata.reply_to_message_id
            if (node := self.under_way.get(name)) is None:
                continue
            sent = [one for one, whose in self.under_way.items() if whose == node]
            for earlier in sent[: sent.index(name) + 1]:  # answered, too, or lost
                del self.under_way[earlier]
            if answer.has_error():
                log(WARNING, "a node did not answer, and is asked again: %s", answer.error.reason)
                continue
            try:
                self.there[node] = unpacked(answer.content, self.place)
                code = answer.content.config_records["place"]["code"]
            except Exception as error:  # whatever a node may send, the others go on
                log(WARNING, "node %d has sent no answer of a session: %r", node, error)
                continue
            if code:
                log(WARNING, "node %d: its log says what is wrong", node)
        return bool(answers)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Turns until the session has ended."""
    o, said = context.run_config, ""
    folder, poll = Path(str(o["session"])).absolute(), float(o["poll"])
    if not (folder / "session.json").exists():
        raise ValueError(f"no {folder}/session.json: give session= in --run-config (README.md)")
    place = Path(str(o["place"] or f"{folder}-place")).absolute()
    words = {"key": o["key"], "deadline": o["deadline"], "out": folder}
    courier = Courier(grid, place, float(o["again"]), float(o["days"]))
    while len(list(grid.get_node_ids())) < int(o["sites"]):
        time.sleep(poll)
    while True:
        before, (code, said) = said, session(str(o["afltool"]), "serve", place, words)
        if code:
            raise RuntimeError(f"afltool session serve ended with {code}: {said}")
        if said != before:
            log(INFO, "%s", said)
        if (folder / "summary.json").exists():
            return
        courier.ask()
        while not courier.take():
            time.sleep(poll)
            courier.ask()
