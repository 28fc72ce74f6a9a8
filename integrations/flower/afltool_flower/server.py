"""The server of a session over Flower: turns of `afltool session serve`, and messages between them.

Each node is asked for itself, so that a site that is late or away keeps nobody else waiting; the
session's own threshold and deadline decide without whom it goes on. A message may be lost with a
SuperNode that is killed, and nobody says so if it is back soon: a node that is silent is sent one
message more, which it takes up after the first (Flower runs one at a time).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Context, Message
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from .courier import has, names_in, packed, session, unpacked

app = ServerApp()
TOGETHER = 2.0  # seconds in which answers are waited for, to take one turn for all of them


@dataclass
class Node:
    """What is known of a node: what it has, the messages under way, and when the last was sent."""

    there: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)
    asked: float = 0.0


class Courier:
    """Messages between the server's folder and the nodes."""

    def __init__(self, grid: Grid, context: Context) -> None:
        o = context.run_config
        self.grid, self.o, self.nodes = grid, o, dict[int, Node]()
        self.folder = Path(str(o["session"])).absolute()
        self.place = Path(str(o["place"] or f"{self.folder}-place")).absolute()
        if not (agreed := self.folder / "session.json").exists():
            raise ValueError(f"no {agreed}: give session= in --run-config (README.md)")
        self.signed = json.loads(agreed.read_text())["protection"] == "signed"
        self.said, self.sent, self.received = "", 0, 0

    def serve(self) -> bool:
        """The server's turn; whether the session has ended."""
        words = {"key": self.o["key"], "deadline": self.o["deadline"], "out": self.folder}
        code, said = session(str(self.o["afltool"]), "serve", self.place, words)
        if code:
            raise RuntimeError(f"afltool session serve ended with {code}: {said}")
        if said != self.said:
            log(INFO, "%s", said)
        self.said = said
        return (self.folder / "summary.json").exists()

    def ask(self) -> None:
        """Send each node what it lacks, unless it is at work. Signed sums are for the server."""
        mine = {n for n in names_in(self.place) if not (self.signed and "-sums-" in n)}
        now, messages = time.monotonic(), dict[int, Message]()
        for node_id in self.grid.get_node_ids():
            node = self.nodes.setdefault(node_id, Node())
            new, silent = mine - node.there, now - node.asked >= float(self.o["again"])
            if (new and not node.messages) or (silent and len(node.messages) < 2):
                content, ttl = packed(self.place, new), 86400 * float(self.o["days"])
                messages[node_id] = Message(content, node_id, "query.turn", ttl=ttl)
        ids = list(self.grid.push_messages(messages.values()))
        if len(ids) != len(messages):
            log(WARNING, "the SuperLink took %d of %d messages", len(ids), len(messages))
            return  # all are sent again
        for (node_id, message), name in zip(messages.items(), ids, strict=True):
            self.nodes[node_id].messages.append(name)
            self.nodes[node_id].asked = now
            self.sent += sum(
                a.numpy().nbytes for a in message.content.array_records["files"].values()
            )

    def take(self) -> bool:
        """Take the answers that have come; whether there were any."""
        under_way = {name: node for node in self.nodes.values() for name in node.messages}
        answers = list(self.grid.pull_messages(under_way)) if under_way else []
        for answer in answers:
            name = answer.metadata.reply_to_message_id
            node = under_way[name]
            if name in node.messages:  # what was sent before it was answered, too, or is lost
                del node.messages[: node.messages.index(name) + 1]
            if answer.has_error():
                log(WARNING, "a node did not answer, and is asked again: %s", answer.error.reason)
                continue
            node.there = has(answer.content)
            self.received += unpacked(answer.content, self.place)
            if answer.content.config_records["place"]["code"]:
                log(WARNING, "node %d: its log says what is wrong", answer.metadata.src_node_id)
        return bool(answers)

    def is_idle(self) -> bool:
        """Whether no message is under way."""
        return not any(node.messages for node in self.nodes.values())


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Turns until the session has ended."""
    courier, poll = Courier(grid, context), float(context.run_config["poll"])
    while len(list(grid.get_node_ids())) < int(context.run_config["sites"]):
        time.sleep(poll)
    over, came = courier.serve(), 0.0
    while not over:
        courier.ask()
        if courier.take():
            came = came or time.monotonic()
        if came and (courier.is_idle() or time.monotonic() - came >= TOGETHER):
            over, came = courier.serve(), 0.0
        else:
            time.sleep(poll)
    log(INFO, "sent %d bytes to the sites, %d came", courier.sent, courier.received)
