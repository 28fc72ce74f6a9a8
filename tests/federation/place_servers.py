"""Servers of places on 127.0.0.1: SFTP, S3, WebDAV, and such as misbehave."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from getpass import getuser
from importlib.util import find_spec
from pathlib import Path

import pytest

SFTP = Path("/usr/lib/openssh/sftp-server")


def needed(*modules: str, **programs: object) -> None:
    """Skip a test whose server is not installed, or fail it where it has to be."""
    absent = [name for name in modules if find_spec(name.partition(".")[0]) is None]
    if absent := [*absent, *(name for name, found in programs.items() if not found)]:
        say = pytest.fail if os.environ.get("AFLTOOL_REQUIRE_PLACES") else pytest.skip
        say(f"no {', '.join(absent)}")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def running(*command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


@contextmanager
def sftp(folder: Path):
    """Debian's openssh on loopback, with a key of its own for host and user."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    needed("paramiko", sshd=sshd, sftp_server=SFTP.exists())
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", folder / name], check=True)
    port, place = free_port(), folder / "sftp"
    place.mkdir()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nUsePAM no\nPidFile none\nSubsystem sftp {SFTP}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    env = {"FSSPEC_SFTP_KEY_FILENAME": str(folder / "user"), "FSSPEC_SFTP_USERNAME": getuser()}
    with running(sshd, "-D", "-e", "-f", str(folder / "sshd_config"), port=port):
        yield f"sftp://127.0.0.1:{port}{place}/trial", env


@contextmanager
def s3(folder: Path):
    """A server of the S3 protocol: moto's, with one bucket."""
    needed("s3fs", "moto")
    url, env = addressed("s3", port := free_port())
    with running(sys.executable, "-m", "moto.server", "-p", str(port), port=port):
        import s3fs

        server = env["FSSPEC_S3_ENDPOINT_URL"]
        s3fs.S3FileSystem(key="a", secret="b", endpoint_url=server).mkdir("hospitals")
        yield url, env


@contextmanager
def webdav(folder: Path):
    """wsgidav over a folder."""
    needed("webdav4", "wsgidav", "cheroot")
    from cheroot.wsgi import Server
    from wsgidav.wsgidav_app import WsgiDAVApp

    port, place = free_port(), folder / "dav"
    place.mkdir()
    config = {"provider_mapping": {"/": str(place)}, "simple_dc": {"user_mapping": {"*": True}}}
    app = WsgiDAVApp({**config, "verbose": 0, "logging": {"enable": False}})
    server = Server(("127.0.0.1", port), app)
    thread = threading.Thread(target=server.start, daemon=True)
    thread.start()
    wait_for(port)
    yield "webdav://trial", {"FSSPEC_WEBDAV_BASE_URL": f"http://127.0.0.1:{port}/"}
    server.stop()
    thread.join(10)


@contextmanager
def folder(folder: Path):
    yield str(folder / "share" / "trial"), {}


PLACES = {"folder": folder, "sftp": sftp, "s3": s3, "webdav": webdav}


@contextmanager
def configured(env: dict[str, str]):
    """fsspec in this process is as it would be in one that begins with these variables."""
    import fsspec.config

    before = dict(fsspec.config.conf)
    fsspec.config.set_conf_env(fsspec.config.conf, env)
    try:
        yield
    finally:
        fsspec.config.conf.clear()
        fsspec.config.conf.update(before)


@contextmanager
def answering(said: bytes | None):
    """The port of a server that says this, whatever it is asked, and hangs up; None: nothing."""
    over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            return over.wait() if said is None else self.wfile.write(said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        over.set()
        server.shutdown()


def addressed(kind: str, port: int) -> tuple[str, dict[str, str]]:
    """A place of this kind behind a port, and the variables that lead to it."""
    host = f"http://127.0.0.1:{port}"
    url = f"sftp://127.0.0.1:{port}/trial" if kind == "sftp" else f"{kind}://hospitals/trial"
    env = {"ENDPOINT_URL": host, "KEY": "a", "SECRET": "b"}
    return url, {"FSSPEC_WEBDAV_BASE_URL": host, **{f"FSSPEC_S3_{k}": v for k, v in env.items()}}
