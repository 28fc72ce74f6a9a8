"""A session over Flower: a SuperLink with TLS and node authentication, and three SuperNodes.

Flower has an environment of its own (`make flower`); its programs are in $AFLTOOL_FLOWER, or beside
this Python in flower/bin. Every head and protection is nightly: about 15 minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from conftest import COMMAND
from flower_loopback import Loopback

sys.path.append(str(Path(__file__).parent / "federation"))
from apart import DEEPAFL, NAMES, Apart, rows

PROGRAMS = Path(os.environ.get("AFLTOOL_FLOWER", Path(sys.prefix) / "flower" / "bin"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PROGRAMS / "flwr").exists(), reason=f"no Flower in {PROGRAMS}"),
]
SIGNED, MASKED = ("--protection", "signed"), ()
NOISE = ("--dp-epsilon", 5, "--dp-delta", 1e-5, "--clip", 3)
ROWS = ("--max-rows", 100)
AGREED = {
    "deepafl, masked": ("deepafl", DEEPAFL, (*ROWS, *MASKED), True),
    "deepafl, signed": ("deepafl", DEEPAFL, (*ROWS, *SIGNED), False),
    "softmax, masked": ("softmax", {"rounds": 20}, (*ROWS, *MASKED), False),
    "linear, signed": ("linear", {}, (*ROWS, *SIGNED), True),
    "linear, noise": ("linear", {}, NOISE, False),
}


def made(cli, folder, head, options, new, tested):
    features = rows(folder / "rows")
    test = rows(folder / "test", seed=1) if tested else None
    return Apart(cli, folder / "all", features, head=head, options=options, test=test, new=new)


def begun(link, apart: Apart):
    """Everything is started but the app; the SuperLink, the SuperNodes, and what each was given."""
    superlink = link.superlink()
    allow = "signed" if "signed:" in apart.said else "masked"
    configs = {
        name: {
            "key": apart.at / "keys" / name, "data": apart.features[name], "allow": allow,
            "approve": apart.code, "folder": apart.at / name, "afltool": COMMAND,
            **({"test": apart.test[name]} if apart.test else {}),
        }
        for name in NAMES
    }  # fmt: skip
    nodes = {name: supernode(link, name, config) for name, config in configs.items()}
    return superlink, nodes, configs


def supernode(link, name, config):
    """One site; each has a state of its own, as on a machine of its own."""
    link.env["AFLTOOL_STATE"] = str(link.folder / f"state-{name}")
    return link.supernode(name, config)


def wait_until(there, seconds: float, log: Path) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


@pytest.mark.nightly
def test_whatever_is_killed_the_head_over_flower_is_that_of_the_files(cli, tmp_path, monkeypatch):
    """Masked statistics of a round of each kind; the last evaluates the head on other rows.

    ServerApp and SuperLink die with -9, and the same line goes on, the shortest: the session, its
    key and afltool are where the app looks for them. Then north's SuperNode dies in its turn.
    """
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5")  # 0.1 keeps a core busy
    apart = made(cli, tmp_path, "deepafl", DEEPAFL, ROWS, True)
    with ExitStack() as processes:
        link = Loopback(tmp_path / "loopback", processes, PROGRAMS)
        (link.folder / "trial").symlink_to(apart.at / "server")
        (link.folder / "server.key").symlink_to(apart.at / "keys/server")
        (link.folder / "server.key.pub").symlink_to(apart.at / "keys/server.pub")
        superlink, nodes, configs = begun(link, apart)
        line, log = {"sites": 3, "again": 20}, link.folder / "run.log"
        place = link.folder / "trial-place"
        link.app(line)
        wait_until(lambda: any(place.glob("000-hello-*")), 600, log)
        killed(superlink, "flwr-serverapp", processes)
        link.app(line)
        wait_until(lambda: any(place.glob("001-sums-*")), 600, log)
        killed(superlink, "flower-superlink", processes)
        link.superlink()
        run = link.app(line)
        wait_until(lambda: any(place.glob("002-sums-*")), 600, log)
        nodes["north"].send_signal(signal.SIGKILL)
        nodes["north"].wait()
        said = link.folder / "superlink.log"
        before = said.read_text().count("Activated node_id")
        while said.read_text().count("Activated node_id") == before:
            if nodes["north"].poll() is not None:  # refused until the old one is noticed as gone
                nodes["north"] = supernode(link, "north", configs["north"])
            time.sleep(10)
        wait_until(lambda: run.poll() is not None, 1200, log)
    check_end(apart, log)


def killed(superlink, name: str, processes: ExitStack) -> None:
    """Kill the processes of a SuperLink that have this name; the others end with the test."""
    own = psutil.Process(superlink.pid)
    every = [own, *own.children(recursive=True)]
    found = [one for one in every if name in " ".join(one.cmdline())]
    assert found
    for one in found:
        one.kill()
    psutil.wait_procs(found, 20)
    for one in every:
        processes.callback(lambda one=one: one.is_running() and one.kill())


def check_end(apart: Apart, log: Path, exact: bool = True) -> None:
    """Everybody has the head of the pooled rows, unless with noise."""
    assert (apart.at / "server/summary.json").exists(), log.read_text()[-3000:]
    found = apart.summary("server")  # a run that failed ends with 0, too
    assert (found["head"] == apart.pooled()) is exact
    assert found["signed"] == sorted([*NAMES, "server"])
    for name in NAMES:
        assert apart.summary(f"{name}/session")["head"] == found["head"]


QUICK = "linear, signed"


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == QUICK else pytest.mark.nightly) for n in AGREED],
)
def test_heads_and_protections_over_flower(cli, tmp_path, name):
    """Each takes minutes, most of which Flower waits."""
    apart = made(cli, tmp_path, *AGREED[name])
    with ExitStack() as processes:
        link = Loopback(tmp_path / "loopback", processes, PROGRAMS)
        begun(link, apart)
        at = {"session": apart.at / "server", "place": apart.at / "place", "afltool": COMMAND}
        run = link.app({"sites": 3, "key": apart.at / "keys/server", **at})
        wait_until(lambda: run.poll() is not None, 1200, link.folder / "run.log")
    check_end(apart, link.folder / "run.log", exact="noise" not in name)
