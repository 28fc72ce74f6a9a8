"""A site: its turn of the session, with its own key and features, which stay where they are.

--node-config of its SuperNode has: key, features, approve (the digest that was compared), and
folder (of this site; its part of the place lies in folder/place). Optional: afltool (the
executable), passphrase-file, test (rows for a session that evaluates its head).
"""

from __future__ import annotations

from logging import ERROR, INFO
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from .courier import has, lacks, listing, packed, session, unpacked

app = ClientApp()
NEEDED = ("key", "features", "approve", "folder")


@app.query("turn")
def turn(message: Message, context: Context) -> Message:
    """Take what has come, do what can be done now, and answer with what the server lacks."""
    site = {name: str(value) for name, value in context.node_config.items()}
    absent = [name for name in NEEDED if name not in site]
    if absent:
        raise ValueError(f"--node-config of this SuperNode lacks {', '.join(absent)}")
    folder = Path(site["folder"]).absolute()
    place = folder / "place"
    unpacked(message.content, place)
    words = {
        name: site.get(name) for name in ("key", "features", "test", "approve", "passphrase-file")
    }
    code, said = session(
        site.get("afltool", "afltool"), "join", place, {**words, "out": folder / "session"}
    )
    # What went wrong may name files of this site, so it is said here and not to the server.
    log(ERROR if code else INFO, "afltool session join: %s", said or "nothing new")
    content = packed(place, lacks(has(message.content), listing(place)))
    content.config_records["place"]["code"] = code
    return Message(content, reply_to=message)
