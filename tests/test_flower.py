"""A session over Flower: a SuperLink with TLS and node authentication, and three SuperNodes.

Flower has an environment of its own (`make flower`); its programs are in $AFLTOOL_FLOWER, or beside
this Python in flower/bin. It carries files as they are, so one head and protection says what all
would. Minutes, most of which Flower waits.
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
    pytest.mark.nightly,
    pytest.mark.skipif(not (PROGRAMS / "flwr").exists(), reason=f"no Flower in {PROGRAMS}"),
]


def supernode(link, apart, name):
    """One site; each has a state of its own, as on a machine of its own."""
    link.env["AFLTOOL_STATE"] = str(link.folder / f"state-{name}")
    given = {"data": apart.features[name], "test": apart.test[name], "folder": apart.at / name}
    own = {"key": apart.keys / name, "approve": apart.code, "afltool": COMMAND}
    return link.supernode(name, {**own, **given})


def wait_until(there, seconds: float, log: Path) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


def test_whatever_is_killed_the_head_over_flower_is_that_of_the_files(cli, tmp_path, monkeypatch):
    """Masked statistics of a round of each kind; the last evaluates the head on other rows.

    ServerApp and SuperLink die with -9, and the same line goes on. Then north's SuperNode does.
    """
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5")  # 0.1 keeps a core busy
    features, test = rows(tmp_path / "rows"), rows(tmp_path / "test", seed=1)
    apart = Apart(cli, tmp_path / "all", features, head="deepafl", options=DEEPAFL, test=test,
                  new=("--max-rows", 100))  # fmt: skip
    with ExitStack() as processes:
        link = Loopback(tmp_path / "loopback", processes, PROGRAMS)
        for name, path in {"trial": apart.at / "server", "server.key": apart.keys / "server",
                           "server.key.pub": apart.keys / "server.pub"}.items():  # fmt: skip
            (link.folder / name).symlink_to(path)
        superlink = link.superlink()
        nodes = {name: supernode(link, apart, name) for name in NAMES}
        line, log = {"sites": 3, "again": 60}, link.folder / "run.log"
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
                nodes["north"] = supernode(link, apart, "north")
            time.sleep(10)
        wait_until(lambda: run.poll() is not None, 1200, log)
    assert (apart.at / "server/summary.json").exists(), log.read_text()[-3000:]
    found = apart.summary("server")  # a run that failed ends with 0, too
    assert found["head"] == apart.pooled()
    assert found["signed"] == sorted([*NAMES, "server"])
    for name in NAMES:
        assert apart.summary(f"{name}/session")["head"] == found["head"]


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
