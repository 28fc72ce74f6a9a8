"""new: a WebDAV server that lies about sizes, has every file, and says odd things.

The place: makes a site read without an end, look without an end, or print what it likes.

Shows: the server says that a message has −5, 10^30, 'nan' or '1e3' bytes, and sends 200 MB; nests
entities; answers with escape codes in its reason; the login is part of the base URL. Then a place
that has every name that is asked for, so that there is always one more round.
Must hold: no more than the message's size is taken; `status` ends; what is printed has neither
escape codes nor the password.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from base import MB, Path, Place, Trial, afl, of_sites, os, outcome, premise, run

from afltool.federation import place as place_
from afltool.federation.commands import waiting as status

MOST, PASSWORD = 200 * MB, "pa55word"
ENTITIES = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
BOMB = f'<!DOCTYPE l [<!ENTITY e0 "aaaaaaaaaa">{ENTITIES}]><l>&e9;</l>'
FOUND = (
    '<d:multistatus xmlns:d="DAV:"><d:response><d:href>{path}</d:href><d:propstat><d:prop>'
    "<d:getcontentlength>{size}</d:getcontentlength><d:resourcetype/></d:prop>"
    "<d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response></d:multistatus>"
)


class Liar(BaseHTTPRequestHandler):
    """``size``: what it says of any file; ``sent``: bytes of the longest answer."""

    size, reason, sent = "100", "", 0

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.reason:
            return self.send_response(500, self.reason), self.end_headers()
        self.send_response(207 if self.command == "PROPFIND" else 200)
        self.end_headers()
        if self.command == "PROPFIND":
            text = BOMB if self.size == "bomb" else FOUND.format(path=self.path, size=self.size)
            self.wfile.write(text.encode())
            return None
        sent, piece = 0, bytes(1 << 16)
        try:
            while self.command == "GET" and sent < MOST:
                sent += self.wfile.write(piece)
        except OSError:
            pass
        Liar.sent = max(Liar.sent, sent)
        return None

    do_GET = do_PUT = do_HEAD = do_PROPFIND = do_MOVE = do_MKCOL = do_OPTIONS = answer

    def log_message(self, *_):
        pass


def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(at):
    import webdav4  # noqa: F401  (without it nothing would be asked)

    place_.SILENT = 3.0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://user:{PASSWORD}@127.0.0.1:{server.server_port}/dav/"
    os.environ["FSSPEC_WEBDAV_BASE_URL"] = base
    broken, dav = [], Place("webdav://trial")
    premise(outcome(lambda: dav.read("001-sums-north", 1000)) == ("waits", bytes(100)), "it reads")
    for size in ("-5", "-1", "9" * 30, "nan", "1e3", "bomb", "1001"):
        Liar.size, Liar.sent = size, 0
        before = rss()
        kind, said = outcome(lambda: dav.read("001-sums-north", 1000))
        print(f"{size}: {kind} {str(said)[:90]!r}; {Liar.sent >> 20} MB sent")
        if kind == "crash" or Liar.sent > 100 * MB or rss() - before > 100 * MB:
            broken.append(f"size {size}")
    trial, Liar.size = Trial(at, of_sites(at / "rows")), "100"
    asked = []

    def there(name):
        asked.append(name)
        if len(asked) > 1000:
            raise RecursionError("for ever")
        return 9

    dav.size = there
    kind, said = outcome(lambda: status(dav, trial.agreed))
    print(f"status: {kind} {said!r}, {len(asked)} names were asked for")
    if kind == "crash":
        broken.append("status")
    Liar.reason = "\x1b[31mred\x9b31m"
    done = afl("session", "status", "webdav://trial", ok=False)
    print("reason:", done.returncode, repr(done.said[:160]))
    if "\x1b" in done.said or PASSWORD in done.said or done.returncode != 3:
        broken.append("what is printed")
    if broken:
        return True, f"a WebDAV server that lies: {broken}"
    return False, "sizes that are none, entities, a file under each name, escape codes: all refused"


if __name__ == "__main__":
    run(main)
