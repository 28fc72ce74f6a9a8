"""adapted: presigned forms are gone → NAME.urls and http:// are no places; WebDAV follows no redirect.

The place, or whoever says its address: makes a site fetch any address, inside its own network.

Shows: a place answers with a redirect to another server, as an internal address would be; a file of
signed addresses, or a plain address, leads there as well. The second server would see the request,
and the login. Both servers are on 127.0.0.1.
Must hold: no request reaches another server, for reading, looking or writing, at the beginning or
in the middle of a session.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from base import Path, Place, Trial, afl, of_sites, os, outcome, premise, run

FOUND = (
    '<d:multistatus xmlns:d="DAV:"><d:response><d:href>{path}</d:href><d:propstat><d:prop>'
    "<d:getcontentlength>2</d:getcontentlength><d:resourcetype/></d:prop>"
    "<d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response></d:multistatus>"
)


def server(answer):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        do_POST = do_PUT = do_HEAD = do_PROPFIND = do_MOVE = do_MKCOL = do_OPTIONS = do_GET

        def log_message(self, *_):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return made, f"http://127.0.0.1:{made.server_port}"


def main(at):
    import webdav4  # noqa: F401  (without it nothing would be asked)
    from fsspec.config import conf, set_conf_env

    seen, asked = [], []

    def inside(request):
        seen.append(f"{request.command} {request.path} {request.headers.get('Authorization')}")
        request.send_response(200)
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"[]")

    _, internal = server(inside)

    def outside(request):
        asked.append(request.command)
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if looks and request.command == "PROPFIND":
            request.send_response(207)
            request.end_headers()
            request.wfile.write(FOUND.format(path=request.path).encode())
            return
        request.send_response(code)
        request.send_header("Location", f"{internal}/latest/meta-data/secret")
        request.send_header("Content-Length", "0")
        request.end_headers()

    code, looks = 302, False
    _, place = server(outside)
    rows = of_sites(at / "rows")
    trial = Trial(at, rows)
    trial.serve()
    words = ("--key", trial.keys / "north", "--data", rows["north"], "--once", "-o", at / "north",
             "--approve", trial.agreed.code)  # fmt: skip
    login = place.replace("//", "//north:secret@")
    done = afl("session", "join", "webdav://trial", *words, ok=False, FSSPEC_WEBDAV_BASE_URL=login)
    print("join of a WebDAV place ended with", done.returncode, ":", done.said.strip()[-160:])
    premise(asked, f"the place was asked: {asked}")
    os.environ["FSSPEC_WEBDAV_BASE_URL"] = login
    set_conf_env(conf)
    dav = Place("webdav://trial")
    for code in (301, 302, 303, 307, 308):
        for act in (lambda: dav.read("session.json", 9), lambda: dav.size("session.json"),
                    lambda: dav.write("001-sums-north", b"x" * 99)):  # fmt: skip
            before = len(asked)
            kind, said = outcome(act)
            premise(asked[before:], f"{code}: the place was asked: {said}")
            premise(kind == "stops", f"{code}: such a place is away: {said}")
            seen += [said] * ("secret" in said)  # the login
    looks = True  # a library may follow in a read what it does not in a look
    for code in (301, 302, 303, 307, 308):
        before = len(asked)
        kind, said = outcome(lambda: dav.read("session.json", 9))
        print(f"{code}: read alone leads there: {kind}: {said}"[:160])
        premise("GET" in asked[before:], f"it was read: {asked[before:]}")
        premise(kind == "stops" or seen, f"{code}: such a file is away: {said}")
        seen += [said] * ("secret" in str(said))
    urls = at / "trial.urls"
    urls.write_text(f'{{"index": "{internal}/index.json", "send": "{internal}/", "fields": {{}}}}')
    urls.chmod(0o600)
    for address in (urls, f"{internal}/trial", f"http:{internal[5:]}", f"reference::{internal}/x",
                    f"simplecache::{internal}/trial", f"zip://x::{internal}/a.zip"):  # fmt: skip
        found = afl("session", "join", address, *words, ok=False)
        print(
            f"join {str(address).replace(str(at), '')}: {found.returncode} {found.said.strip()[-90:]}"
        )
        premise(found.returncode in (2, 3, 4, 75), f"it is no place: {found.said}")
    link = at / "place" / "link"  # in a folder: a link in the place of a message
    link.mkdir()
    (link / "session.json").symlink_to(Path("/etc/hostname"))
    read = Place(str(link)).read("session.json", 999)
    print("the internal server was asked:", seen, "; a link in a folder is read as", read)
    if seen or read:
        return True, f"a site is led to another server or file: {seen[:1]} {read}"
    return False, "no address but the place is asked"


if __name__ == "__main__":
    run(main)
