"""new: a node of Flower that answers with anything.

Member, through Flower: sends the server's app what is no answer of a session, to end it for all; the
server, through Flower: sends a site half a file.

Shows: of three nodes one answers with a file named ../x, with none, with an array that cannot be
read, with texts for lists, with 2^70 as a code; then it sends files in the names of others. A site
is killed while it writes session.json. Flower itself is replaced by what the app asks of it: the
same classes over dictionaries.
Must hold: the app takes the answers of the others and goes on; nothing is written outside the place;
no half file stays under a name.
"""

import sys
import types
from contextlib import suppress

from base import Path, np, premise, run

APP = Path(__file__).parents[2] / "integrations/flower"


class Array:
    def __init__(self, data):
        self.data = data

    def numpy(self):
        if self.data is None:
            raise TypeError("an array of another kind")
        return self.data


class RecordDict(dict):
    array_records = property(lambda self: self)
    config_records = property(lambda self: self)


class Message:
    def __init__(self, content, node):
        self.content = content
        self.metadata = types.SimpleNamespace(src_node_id=node)

    def has_error(self):
        return False


class App:
    def __call__(self, *_):
        return lambda function: function

    main = query = __call__


def stand_in():
    """Modules named as Flower's, with what the app imports of them."""
    said = []
    parts = {
        "flwr.app": {"Array": Array, "ArrayRecord": dict, "ConfigRecord": dict, "Context": object,
                     "Message": Message, "RecordDict": RecordDict},
        "flwr.clientapp": {"ClientApp": App},
        "flwr.serverapp": {"Grid": object, "ServerApp": App},
        "flwr.common.logger": {"log": lambda _, text, *about: said.append(text % about)},
    }  # fmt: skip
    for name in ("flwr", "flwr.common", *parts):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(parts.get(name, {}))
    sys.path.append(str(APP))
    return said


def answer(files, have=(), code=0):
    return RecordDict({"files": files, "place": {"have": list(have), "code": code}})


def main(at):
    said = stand_in()
    from afltool_flower import app

    good = Array(np.frombuffer(b"hello", np.uint8))
    odd = {
        "a path": answer({"../x": good}), "a link": answer({"000-hello-/x": good}),
        "nothing": RecordDict(), "no list": answer([1, 2]), "an array": answer({"000-hello-eve": Array(None)}),
        "a text": answer({"000-hello-eve": "abc"}), "no place": RecordDict({"files": {}}),
        "have": RecordDict({"files": {}, "place": {"have": 7, "code": 0}}),
        "a code": answer({}, code=2**70), "an odd code": answer({}, code="\x1b[31m"),
    }  # fmt: skip
    broken, place = [], at / "office" / "place"
    for what, content in odd.items():
        (place / "000-hello-a").unlink(missing_ok=True)
        there = {}
        try:
            app.take([Message(content, 1), Message(answer({"000-hello-a": good}), 2)], place, there)
        except Exception as error:
            print(f"{what}: {error!r}")
            broken.append(what)
        if not (place / "000-hello-a").exists() or 2 not in there:
            broken.append(f"{what}: the other one's answer")
    print("\n".join(said))
    outside = [
        p.name
        for p in (*at.glob("*"), *(at / "office").glob("*"))
        if p.name not in ("office", "place")
    ]
    (place / "000-hello-b").write_bytes(b"right")
    app.unpacked(answer({"000-hello-b": good}), place)
    premise((place / "000-hello-b").read_bytes() == b"right", "what is there stays")

    class Cut(Array):
        def numpy(self):
            return self

        def tofile(self, path):
            Path(path).write_bytes(b"{")
            raise KeyboardInterrupt

    site = at / "site"
    with suppress(KeyboardInterrupt):
        app.unpacked(answer({"session.json": Cut(None)}), site)
    half = app.names_in(site)
    app.unpacked(answer({"session.json": good}), site)
    print("half a file:", half, "; then:", (site / "session.json").read_bytes())
    if half or outside or (site / "session.json").read_bytes() != b"hello":
        broken.append(f"half a file, or one outside: {half}, {outside}")
    if broken:
        return True, f"a node ends the session of all, or spoils a place: {broken}"
    return False, f"{len(odd)} odd answers are passed over, the other nodes go on"


if __name__ == "__main__":
    run(main)
