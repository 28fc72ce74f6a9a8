"""Sessions over real servers, and processes that are killed at any of their file operations.

With AFLTOOL_PLACES_EVERY=1 every head and protection over every place, about 25 minutes. With
AFLTOOL_REQUIRE_PLACES=1 a server that is not installed fails its tests, which are skipped else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import fill, installed
from sites_apart import ALL, DEEPAFL, HEADS, MATRIX, NAMES, PROTECTIONS, SOFTMAX, Apart, rows

import afltool
from afltool.courier.depot import Depot
from afltool.courier.party import status
from afltool.courier.urls import MOST_LISTED, session_urls
from afltool.errors import AflError, UnreachableError
from afltool.files.session_folder import SessionFolder
from afltool.plans import sessions as plan
from afltool.values.arrays import file_sha256

pytestmark = pytest.mark.slow
SFTP = Path("/usr/lib/openssh/sftp-server")
KILLS = 64
EVERY = "AFLTOOL_PLACES_EVERY" in os.environ


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("rows"), np.random.default_rng(0))


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


def wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


@contextmanager
def running(*command, port, **options):
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        wait_for(port)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture
def sftp(tmp_path):
    """Debian's openssh on loopback, with a key of its own for host and user."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    needed("paramiko", sshd=sshd, sftp_server=SFTP.exists())
    for name in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(made, check=True)
    port, place = free_port(), tmp_path / "sftp"
    place.mkdir()
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nUsePAM no\nPidFile none\n"
        f"Subsystem sftp {SFTP}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    env = {"FSSPEC_SFTP_KEY_FILENAME": str(tmp_path / "user"), "FSSPEC_SFTP_USERNAME": user}
    with running(sshd, "-D", "-e", "-f", str(tmp_path / "sshd_config"), port=port):
        yield f"sftp://127.0.0.1:{port}{place}/trial", env


@pytest.fixture
def s3(tmp_path):
    """A server of the S3 protocol: moto's."""
    needed("s3fs", "moto")
    port = free_port()
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    env = {"FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}", **keys}
    with running(sys.executable, "-m", "moto.server", "-p", str(port), port=port):
        import s3fs

        given = {"key": "a", "secret": "b", "endpoint_url": env["FSSPEC_S3_ENDPOINT_URL"]}
        s3fs.S3FileSystem(**given).mkdir("bucket")
        yield "s3://bucket/trial", env


def test_credentials_for_one_prefix_are_enough(tmp_path, features, monkeypatch):
    """What docs/sessions.md gives members instead of presigned URLs; moto checks the policy."""
    needed("s3fs", "moto")
    import botocore.session

    port, region = free_port(), "us-east-1"
    where = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": region}
    for name, value in (
        ("ACCESS_KEY_ID", "a"),
        ("SECRET_ACCESS_KEY", "b"),
        ("DEFAULT_REGION", region),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    allowed = [(["GetObject", "PutObject", "DeleteObject"], "/trial/*"), (["ListBucket"], "")]
    policy = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": [f"s3:{one}" for one in actions],
         "Resource": f"arn:aws:s3:::bucket{path}"} for actions, path in allowed]}  # fmt: skip
    env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "4"}  # the four actions below
    with running(sys.executable, "-m", "moto.server", "-p", str(port), port=port, env=env):
        s3, iam = (
            botocore.session.Session().create_client(name, **where) for name in ("s3", "iam")
        )
        s3.create_bucket(Bucket="bucket")
        iam.create_user(UserName="north")
        iam.put_user_policy(UserName="north", PolicyName="p", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName="north")["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", where["endpoint_url"])
        import fsspec.config

        fsspec.config.set_conf_env(fsspec.config.conf)
        apart = Apart(tmp_path / "in", features, "s3://bucket/trial")
        assert apart.play()["head"] == apart.pooled()[1]
        with pytest.raises(UnreachableError, match="Forbidden"):
            Apart(tmp_path / "out", features, "s3://bucket/other").serve()


def test_sites_without_credentials_join_by_signed_addresses(tmp_path, features, s3, monkeypatch):
    """Only the server has them; what the list leads to elsewhere is not fetched."""
    import fsspec.config

    url, env = s3

    @contextmanager
    def credentials():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setitem(fsspec.config.conf, "s3", {"endpoint_url": env["FSSPEC_S3_ENDPOINT_URL"]})
            yield

    class Serving(Apart):
        def serve(self, **options):
            with credentials():
                super().serve(**options)

    apart, out = Serving(tmp_path / "all", features, url, protection="masked"), tmp_path / "t.urls"
    with credentials(), pytest.raises(AflError, match="holds no session"):
        session_urls(url, out)
    apart.serve()
    with credentials(), pytest.raises(AflError, match=r"ends with \.urls"):
        session_urls(url, tmp_path / "t.json")
    with credentials():
        apart.urls = str(session_urls(url, out))
    assert out.stat().st_mode & 0o777 == 0o600
    found = apart.play()
    assert (found["totals"][-1], found["head"]) == apart.pooled()
    assert status(apart.urls)["state"] == "solved"
    elsewhere = [{"name": "session.json", "url": "file:///etc/passwd", "bytes": 3}]
    with credentials():
        Depot(url).send(json.dumps(elsewhere).encode(), "index.json")
    with pytest.raises(AflError, match=r"leads to 'file:///etc/passwd', another place"):
        status(apart.urls)
    with credentials():
        Depot(url).send(b" " * (MOST_LISTED + 1), "index.json")
    with pytest.raises(AflError, match="has more than 64 MB"):
        status(apart.urls)
    out.write_text("{}")
    with pytest.raises(AflError, match="is not a file of session urls"):
        status(apart.urls)


@pytest.fixture
def webdav(tmp_path):
    """wsgidav over a folder."""
    needed("webdav4", "wsgidav", "cheroot")
    from cheroot.wsgi import Server
    from wsgidav.wsgidav_app import WsgiDAVApp

    port, place = free_port(), tmp_path / "dav"
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


PLACES = ("sftp", "s3", "webdav", "folder", "file")
ALWAYS = {
    *((kind, "linear", "masked") for kind in PLACES),
    ("folder", "linear", "noise"),
}
FOUR = [
    pytest.param(*one, id="-".join(one), marks=pytest.mark.skipif(
        not EVERY and one not in ALWAYS, reason="AFLTOOL_PLACES_EVERY=1"))
    for one in ((kind, *agreed) for kind in PLACES for agreed in MATRIX)
]  # fmt: skip


@pytest.mark.parametrize(("kind", "head", "how"), FOUR)
def test_four_processes_over_a_real_place(tmp_path, features, request, kind, head, how):
    """The installed command, one a site, all at the same time; the digests are those of the pooled
    rows. Noise is new each time: everybody has the same head."""
    local = {"folder": str(tmp_path / "share"), "file": f"file://{tmp_path}/share"}
    url, env = (local[kind], {}) if kind in local else request.getfixturevalue(kind)
    apart = Apart(tmp_path / "all", features, url, **HEADS[head], **PROTECTIONS[how])
    common = ["--poll", 0.3, "--key"]
    at = apart.at
    words = {"server": ["serve", url, *common, apart.keys / "server.key"]}
    for name in NAMES:
        approve = ["--approve", apart.digest, "--features", features[name]]
        words[name] = ["join", url, *common, apart.keys / f"{name}.key", *approve]
    started = {
        name: installed("session", *one, "-o", at / name, wait=False, env=env)
        for name, one in words.items()
    }
    try:
        said = {name: process.communicate(timeout=240)[1] for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
    assert {p.returncode for p in started.values()} == {0}, said
    ended = json.loads((at / "server" / "summary.json").read_text())
    same = (ended["totals"][-1], ended["head"]) == apart.pooled()
    assert same is (how != "noise"), said["server"]
    for name in ("server", *NAMES):
        assert afltool.info(at / name / "head-final.h5")["digest"] == ended["head"], said[name]
    done = installed("session", "status", url, "--field", "state", env=env)
    assert done.stdout.strip() == "solved", done.stderr


FILES = {"open", "os.rename", "os.remove", "os.mkdir", "os.link", "os.truncate"}


def leg_now() -> str:
    """Which leg this process carries out, as 'Site statistics 1'; '' for none.

    A site fetches heads, and the signed sums that it checks, outside its legs."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in ("newest", "check_sums"):
            return f"Site {frame.f_code.co_name}"
        if frame.f_code.co_name == "carry" and (leg := frame.f_locals["leg"]):
            return f"{type(frame.f_locals['self']).__name__} {leg.what} {leg.round}"
        frame = frame.f_back
    return ""


def dying(work, moment: int, legs: set[str] | None = None) -> str | None:
    """The work in a process of its own that is killed at its so-manieth operation on files, or of
    a leg that is none of ``legs``; returns which leg that was, None where it was not killed."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        left: dict[str, int] = {}

        def count(event: str, _) -> None:
            if event not in FILES:
                return
            leg = leg_now()
            where = "" if legs is None else leg
            if legs is not None and leg in {"", *legs}:
                return
            left[where] = left.get(where, moment) - 1
            if left[where] == 0:
                os.write(tell, leg.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(tell)
    _, state = os.waitpid(child, 0)
    with os.fdopen(told) as said:
        found = said.read()
    assert os.WIFSIGNALED(state) or os.WEXITSTATUS(state) == 0, "it failed without being killed"
    return found if os.WIFSIGNALED(state) else None


def all_legs(apart, masked: bool, asks: bool) -> set[str]:
    """Every leg of the plan, at a site and at the server."""
    folder = SessionFolder(apart.at / "server")
    part, rounds = plan.Part(Path()), len(list(folder.root.glob("head-?.h5"))) - 1
    legs = plan.opening(folder, part) if masked else []
    for number in range(1, rounds + 1):
        legs += plan.legs_of(folder, number, part, masked=masked, asks=asks)
    found = {f"{side} {leg.what} {leg.round}" for side in ("Site", "Server") for leg in legs}
    outside = {name for name in found if name.startswith(("Site head ", "Site sum "))}
    return found - outside | {"Site newest", "Site check_sums"}


@pytest.mark.parametrize(
    "agreed",
    [{"protection": "masked"}, {"head": "softmax", "rounds": 2},
     {"head": "deepafl", "layers": 1, "width": 8, "compute": "fixed", "protection": "masked",
      "threshold": "all"}],
    ids=["masked", "softmax", "deepafl, all must stay"],
)  # fmt: skip
def test_killed_at_any_operation_it_goes_on_with_the_same_bytes(tmp_path, features, agreed):
    """Each turn of each process is killed several times, at operations drawn from a seed, and each
    leg of the plan at least once."""
    draw, kills = random.Random(5), 0
    apart = Apart(tmp_path, features, **agreed)
    apart.more = {"check_sums": True}
    sent: dict[Path, str] = {}
    hit: set[str] = set()
    while not apart.is_over():
        for name in ("server", *NAMES):
            work = apart.serve if name == "server" else lambda name=name: apart.join(name)
            for most in (8, 40, 120):
                leg = dying(work, draw.randrange(1, most))
                kills, hit = kills + (leg is not None), hit | {leg or ""}
            while (leg := dying(work, 2, hit)) is not None:
                kills, hit = kills + 1, hit | {leg}
            work()
            for path in (tmp_path / name / "letters").glob("*.json"):
                assert sent.setdefault(path, file_sha256(path)) == file_sha256(path), path
    print(f"{kills} kills, {len(hit)} legs")
    assert kills >= KILLS / 2
    masked = agreed.get("protection") == "masked"
    assert hit - {""} == all_legs(apart, masked, masked and "threshold" not in agreed)
    summary = (tmp_path / "server" / "summary.json").read_text()
    for digest in apart.pooled():
        assert digest in summary
    assert not list(tmp_path.rglob("arriving/*")), "nothing half done is left"


def test_a_full_disk_loses_nothing(tmp_path, features, small_disk):
    apart = Apart(tmp_path / "all", features)
    apart.serve()
    (apart.at / "north").symlink_to(small_disk)
    filler = fill(small_disk, 4000)
    with pytest.raises(AflError, match="no space left"):
        apart.join("north")
    filler.unlink()
    apart.join("north")
    shutil.rmtree(apart.at / "server" / "arriving", ignore_errors=True)
    (apart.at / "server" / "arriving").symlink_to(small_disk)
    filler = fill(small_disk, 4000)
    with pytest.raises(AflError, match="no space left"):
        apart.serve()
    filler.unlink()
    (apart.at / "server" / "arriving").unlink()
    assert apart.play()["totals"][0] == apart.pooled()[0]
    assert not list(Path(apart.url).rglob("*refused*")), "a full disk here is not their fault"


def test_an_sftp_server_that_is_restarted(tmp_path, features, sftp, monkeypatch):
    """A connection that broke is made anew; a wrong address is said at once."""
    url, env = sftp
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    import fsspec.config

    fsspec.config.set_conf_env(fsspec.config.conf)
    apart = Apart(tmp_path / "all", features, url)
    assert apart.play()["totals"][0] == apart.pooled()[0]
    apart.url = f"sftp://127.0.0.1:{free_port()}/trial"
    with pytest.raises(UnreachableError, match="cannot be reached"):
        apart.join("north")


@pytest.mark.parametrize(
    "agreed",
    [{**DEEPAFL, "protection": "signed"}, {**DEEPAFL, **ALL}, {**SOFTMAX, "protection": "signed"},
     {**DEEPAFL, "layers": 2, "protection": "masked", "threshold": 2}, {**SOFTMAX, "rounds": 3},
     {**SOFTMAX, "rounds": 3, "protection": "masked"}],
    ids=["deepafl", "deepafl under masks", "softmax", "deepafl, two must stay", "softmax plain",
         "softmax under masks"],
)  # fmt: skip
def test_heads_of_many_rounds(tmp_path, features, agreed):
    """The same digests as in one place."""
    apart = Apart(tmp_path, features, **agreed)
    found = apart.play()
    assert (found["totals"][-1], found["head"]) == apart.pooled()


@pytest.mark.parametrize(
    "agreed",
    [{**DEEPAFL, "layers": 1, "protection": "signed"}, {**SOFTMAX, "rounds": 2, **ALL}],
    ids=["deepafl", "softmax under masks"],
)
def test_a_site_leaves_a_session_of_many_rounds(tmp_path, features, agreed):
    """The others gather all phases again, and have the head of their own rows."""
    apart = Apart(tmp_path / "all", features, **agreed)
    before = apart.play()
    for name in NAMES:
        (apart.at / name).rename(apart.at / f"{name}-before")
    (apart.at / "server").rename(apart.at / "trial")
    again = agreed["protection"] == "masked"
    apart.session = afltool.session_leave(
        apart.at / "trial" / "session.json", apart.at / "server", without=["west"], again=again
    )
    apart.digest, apart.url = afltool.info(apart.session)["digest"], f"{apart.url}-next"
    stay = [name for name in NAMES if name != "west"]
    while not (apart.at / "server" / "summary.json").exists():
        apart.serve()
        for name in stay:
            apart.join(name, again=again)
    head, number = apart.at / "server" / "head-1.h5", 0
    while afltool.info(head)["phase"] is not None:
        number += 1
        out = tmp_path / f"alone-{number}"
        files = [afltool.local_stats(features[n], head, out, client=n) for n in stay]
        total = afltool.aggregate(files, out / "total.h5")
        head = afltool.solve(total, out / "head.h5", head=head)
    for name in ("server", *stay):
        found = afltool.info(apart.at / name / "head-final.h5")["digest"]
        assert found == afltool.info(head)["digest"] != before["head"]
    with pytest.raises(AflError, match="'west'"):
        apart.join("west")


def test_noise_of_all_sites_together(tmp_path, features):
    """Distributed differential privacy: the total has noise, and says how much."""
    noise = {"protection": "masked", "dp_epsilon": 5.0, "dp_delta": 1e-5, "clip": 3.0}
    apart = Apart(tmp_path, features, **noise)
    found = apart.play()
    total = afltool.info(apart.at / "server" / "round-1" / "total.h5")
    assert total["digest"] == found["totals"][0] != apart.pooled()[0]
    assert "privacy" in total


@pytest.mark.parametrize("how", ["signed", "masked"])
def test_an_evaluation_is_a_session_whose_result_is_a_total(tmp_path, features, how):
    """The counts are those of the pooled rows, and everybody gets them."""
    trial = Apart(tmp_path / "trial", features)
    trial.play()
    solved = trial.at / "server" / "head-final.h5"
    counting = afltool.evaluation([solved], tmp_path / "counting.h5")
    apart = Apart(tmp_path / "counts", features, head=str(counting), protection=how)
    found = apart.play()
    pooled = afltool.local_stats(features["pooled"], counting, tmp_path / "o", client="pooled")
    for name in ("server", *NAMES):
        total = afltool.info(apart.at / name / "round-1" / "total.h5")
        assert total["digest"] == afltool.info(pooled)["digest"] == found["totals"][0]
