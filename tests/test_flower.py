"""A session over Flower: a SuperLink with TLS and node authentication, and three SuperNodes.

Flower has an environment of its own (`make flower`); its programs are in $AFLTOOL_FLOWER, or beside
this Python in flower/bin. With AFLTOOL_FLOWER_EVERY=1 every head and protection, about 15 minutes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import COMMAND
from sites_apart import ALL, DEEPAFL, NAMES, PROTECTIONS, SOFTMAX, Apart, rows

import afltool

PROGRAMS = Path(os.environ.get("AFLTOOL_FLOWER", Path(sys.prefix) / "flower" / "bin"))
EVERY = "AFLTOOL_FLOWER_EVERY" in os.environ
APP = Path(__file__).parent.parent / "integrations" / "flower"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PROGRAMS / "flwr").exists(), reason=f"no Flower in {PROGRAMS}"),
]

AGREED = {
    "deepafl, all must stay": {**DEEPAFL, **ALL, "tested": True},
    "deepafl, two must stay": {**DEEPAFL, "protection": "masked", "threshold": 2, "tested": True},
    "deepafl plain": DEEPAFL,
    "softmax, all must stay": {**SOFTMAX, **ALL},
    "softmax plain": SOFTMAX,
    "linear, signed": PROTECTIONS["signed"],
    "linear, noise": PROTECTIONS["noise"],
}
ROUNDS = "deepafl, two must stay"  # with the most kinds of letters


def loopback():
    spec = importlib.util.spec_from_file_location("loopback", APP / "loopback.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Loopback


def begun(link, apart: Apart):
    """Everything is started but the app; the SuperLink, the SuperNodes, and what each was given."""
    superlink = link.superlink()
    configs = {
        name: {
            "key": apart.keys / f"{name}.key", "features": apart.features[name],
            "approve": apart.digest, "folder": apart.at / name, "afltool": COMMAND,
            **({"test": apart.test[name]} if apart.test else {}),
        }
        for name in NAMES
    }  # fmt: skip
    nodes = {name: link.supernode(name, config) for name, config in configs.items()}
    return superlink, nodes, configs


def wait_until(there, seconds: float, log: Path) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


def test_whatever_is_killed_the_total_over_flower_is_that_of_the_files(tmp_path, monkeypatch):
    """Masked statistics of a round of each kind; the last evaluates the head on other rows.

    ServerApp and SuperLink die with -9, and the same line goes on, the shortest: the session, its
    key and afltool are where the app looks for them. Then north's SuperNode dies in its turn.
    """
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5")  # 0.1 keeps a core busy
    features, agreed = given(tmp_path, ROUNDS)
    apart = Apart(tmp_path / "all", features, **agreed | ({} if EVERY else {"layers": 1}))
    with ExitStack() as processes:
        link = loopback()(tmp_path / "loopback", processes, PROGRAMS)
        (link.folder / "trial").symlink_to(apart.at / "server")
        (link.folder / "server.key").symlink_to(apart.keys / "server.key")
        superlink, nodes, configs = begun(link, apart)
        line, log = {"sites": 3, "again": 20}, link.folder / "run.log"
        letters = link.folder / "trial-place" / "letters"
        link.app(line)
        wait_until(lambda: any(letters.glob("000-offer-*")), 600, log)
        killed(superlink, "flwr-serverapp", processes)
        link.app(line)
        wait_until(lambda: any(letters.glob("001-statistics-*")), 600, log)
        killed(superlink, "flower-superlink", processes)
        link.superlink()
        run = link.app(line)
        wait_until(lambda: any(letters.glob("002-statistics-*")), 600, log)
        nodes["north"].send_signal(signal.SIGKILL)
        nodes["north"].wait()
        said = link.folder / "superlink.log"
        before = said.read_text().count("Activated node_id")
        while said.read_text().count("Activated node_id") == before:
            if nodes["north"].poll() is not None:  # refused until the old one is noticed as gone
                nodes["north"] = link.supernode("north", configs["north"])
            time.sleep(10)
        wait_until(lambda: run.poll() is not None, 1200, log)
    check_end(apart, log)
    for name in NAMES:  # nobody is sent what another site had sent
        letters = (apart.at / name / "place").glob("letters/*")
        senders = {json.loads(one.read_text())["body"]["sender"] for one in letters}
        assert senders == {"server", name}


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
    """Everybody has the head of the pooled rows, and the server their total, unless with noise."""
    summary = apart.at / "server" / "summary.json"
    assert summary.exists(), log.read_text()[-3000:]  # a run that failed ends with 0, too
    found = json.loads(summary.read_text())
    assert ((found["totals"][-1], found["head"]) == apart.pooled()) is exact
    for folder in ("server", *(f"{name}/session" for name in NAMES)):
        assert afltool.info(apart.at / folder / "head-final.h5")["digest"] == found["head"]
    if apart.test:
        for name in NAMES:
            own = apart.at / name / "session" / "kept" / f"client-{name}.h5"
            assert afltool.info(own)["rows"] == afltool.info(apart.test[name])["rows"]


def given(folder: Path, name: str):
    """Features of the sites, and what their session agrees on."""
    features, agreed = rows(folder, np.random.default_rng(0)), dict(AGREED[name])
    if agreed.pop("tested", False):
        (folder / "test").mkdir()
        agreed["test"] = rows(folder / "test", np.random.default_rng(1))
    return features, agreed


@pytest.mark.skipif(not EVERY, reason="AFLTOOL_FLOWER_EVERY=1")
@pytest.mark.parametrize("name", AGREED)
def test_heads_and_protections_over_flower(tmp_path, name):
    """Each takes minutes, most of which Flower waits."""
    features, agreed = given(tmp_path, name)
    apart = Apart(tmp_path / "all", features, **agreed)
    with ExitStack() as processes:
        link = loopback()(tmp_path / "loopback", processes, PROGRAMS)
        begun(link, apart)
        at = {"session": apart.at / "server", "place": apart.at / "place", "afltool": COMMAND}
        run = link.app({"sites": 3, "key": apart.keys / "server.key", **at})
        wait_until(lambda: run.poll() is not None, 1200, link.folder / "run.log")
    check_end(apart, link.folder / "run.log", exact="dp_epsilon" not in agreed)
