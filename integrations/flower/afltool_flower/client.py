"""A site: its turn of the session, with its own key and rows, which stay where they are.

--node-config of its SuperNode has: key, data, approve (the code, as it was heard), and folder (of
this site; its part of the place lies in folder/place). Optional: afltool (the executable), y,
row-ids, test, by, allow, passphrase-file, as `afltool session join` has them.
"""

from __future__ import annotations

from logging import ERROR, INFO
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from .courier import names_in, packed, session, unpacked

app = ClientApp()
NEEDED = ("key", "data", "approve")
OPTIONAL = ("y", "row-ids", "test", "by", "allow", "passphrase-file")


@app.query("turn")
def turn(message: Message, context: Context) -> Message:
    """Take what has come, do what can be done now, and answer with what the server lacks."""
    site = {name: str(value) for name, value in context.node_config.items()}
    if absent := [name for name in (*NEEDED, "folder") if name not in site]:
        raise ValueError(f"--node-config of this SuperNode lacks {', '.join(absent)}")
    folder = Path(site["folder"]).absolute()
    place, words = folder / "place", {name: site.get(name) for name in (*NEEDED, *OPTIONAL)}
    server = unpacked(message.content, place)
    words["out"] = str(folder / "session")
    code, said = session(site.get("afltool", "afltool"), "join", place, words)
    # What went wrong may name files of this site, so it is said here and not to the server.
    log(ERROR if code else INFO, "afltool session join: %s", said or "nothing new")
    return Message(packed(place, names_in(place) - server, code), reply_to=message)
