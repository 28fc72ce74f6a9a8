"""Places: a folder, SFTP, S3, WebDAV; away, silent, full, wrong."""

from __future__ import annotations

import os
import time

import pytest
from conftest import fill, installed
from place_servers import addressed, answering, configured, needed, s3, sftp

from afltool.errors import AflError, UnreachableError, UsageError
from afltool.federation import place as module
from afltool.federation.place import Place

slow = pytest.mark.slow
# The libraries below fsspec leave connections that failed to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_file_is_whole_or_not_there(tmp_path):
    """In a folder; over the others sessions are played by processes, in test_commands."""
    one, other = (Place(str(tmp_path / "share/trial")) for _ in range(2))
    assert one.read("session.json", 10) is None
    assert one.size("session.json") is None
    for data in (b"abc", b"", b"x" * 300_000, b"abc"):  # under a name that is there, too
        one.write("000-hello-north", data)
        assert other.size("000-hello-north") == len(data)
        assert other.read("000-hello-north", 300_000) == data
    assert other.read("000-hello-north", 2) == b""  # larger than it may be
    assert other.read("000-hello-south", 2) is None


def test_what_is_no_regular_file_is_not_there(tmp_path):
    place = Place(str(tmp_path))
    (tmp_path / "kept").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, to in (("zero", "/dev/zero"), ("nowhere", "gone"), ("link", "kept")):
        (tmp_path / name).symlink_to(to)
    for name in ("pipe", "zero", "nowhere", "link"):
        assert not place.read(name, 100)
        assert not place.size(name)
        place.write(name, b"22")  # takes its place, and writes nothing where it led
        assert place.read(name, 100) == b"22"
    assert (tmp_path / "kept").read_bytes() == b"1"
    assert place.read("folder", 100) == b""
    with pytest.raises(UnreachableError, match="cannot be reached"):
        place.write("folder", b"22")
    assert not list((tmp_path / "folder").iterdir())


def test_what_is_no_address_is_said_at_once():
    for url in ("", "s3://", "s3:hospitals/trial", "s3://a b/trial", "sftp://host",
                "sftp://host:port/trial", "sftp://[::1/trial", "webdav://trial", "https://host/t",
                "file:trial", "gibberish://trial", "two\nlines", "zip://x::http://host/a.zip",
                "filecache::/trial"):  # fmt: skip
        with pytest.raises(UsageError, match="Not the address of a place") as said:
            Place(url).size("session.json")
        assert repr(url) in str(said.value)
        assert "\n" not in str(said.value)


def test_no_part_of_a_password_is_shown():
    """Also where it has letters that end one in an address, and nobody listens there."""
    for password in ("sec@ret", "x:secret", "x@secret", "secret/x", "secret#x", "secret"):
        with pytest.raises(AflError, match=r"sftp://u:…@127\.0\.0\.1:9/trial") as said:
            Place(f"sftp://u:{password}@127.0.0.1:9/trial").read("session.json", 10)
        assert "sec" not in str(said.value)
        assert "\n" not in str(said.value)
    assert Place("sftp://h:22/home/a@b").url == "sftp://h:22/home/a@b"


@pytest.mark.parametrize("kind", ["sftp", pytest.param("s3", marks=slow), "webdav"])
def test_a_place_that_answers_nothing_is_away_in_time(kind, monkeypatch):
    needed("paramiko", "s3fs", "webdav4")
    monkeypatch.setattr(module, "SILENT", 0.5)
    with answering(None) as port:
        (url, env), begun = addressed(kind, port), time.monotonic()
        with configured(env), pytest.raises(UnreachableError, match=url):
            Place(url).read("session.json", 10)
        assert time.monotonic() - begun < 30


@slow
@pytest.mark.parametrize(
    ("kind", "said"), [("sftp", b"rubbish\r\n\r\n"), ("s3", b"HTTP/1.1 200 OK\r\n\r\n<a>"),
                       ("webdav", b"")]
)  # fmt: skip
def test_a_server_of_something_else_is_one_line(kind, said):
    """No traceback of a library below, of its threads and loops neither."""
    needed("paramiko", "s3fs", "webdav4")
    with answering(said) as port:
        url, env = addressed(kind, port)
        done = installed("session", "status", url, env=env)
    assert done.returncode == 3, done.stderr
    *waiting, error = done.stderr.splitlines()
    assert waiting in ([], [f"session: waiting for {url} to answer"]), done.stderr
    assert error.startswith("error: ")
    assert url in error


@slow
def test_a_bucket_that_is_not_there_is_not_an_empty_one(tmp_path):
    with s3(tmp_path) as (_, env), configured(env):
        assert Place("s3://hospitals/trial").read("session.json", 10) is None
        for work in (lambda p: p.read("session.json", 10), lambda p: p.write("a", b"1")):
            with pytest.raises(UnreachableError, match="bucket"):
                work(Place("s3://hospital/trial"))


@slow
def test_a_place_that_was_away_is_reached_again(tmp_path):
    """The connection is made anew."""
    with sftp(tmp_path) as (url, env), configured(env):
        place = Place(url)
        place.write("a", b"1")
        place._fs[0].client.close()
        with pytest.raises(UnreachableError):
            place.read("a", 1)
        assert place.read("a", 1) == b"1"


@slow
def test_a_full_place_keeps_nothing_half(small_disk):
    place = Place(str(small_disk / "trial"))
    place.write("a", b"1")
    filler = fill(small_disk, leave=100_000)
    with pytest.raises(UnreachableError, match="No space left"):
        place.write("b", b"x" * 500_000)
    assert [p.name for p in (small_disk / "trial").iterdir()] == ["a"]
    filler.unlink()
    place.write("b", b"x" * 500_000)
    assert place.size("b") == 500_000
