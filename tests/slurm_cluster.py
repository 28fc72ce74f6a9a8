"""A Slurm of one node in a folder: its own munged, slurmctld and slurmd, and ways to break them.

Needs the packages slurm-wlm and munge (Debian), no root rights and no systemd. Process tracking is
by process group: the default, control groups, reports jobs as done that have not run where there
is no systemd (Slurm 22.05). A job that is put back waits for cred_expire, 5 s at least.
"""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
SBIN = ("/usr/sbin", "/usr/local/sbin")
CPUS = 4  # at least; more than there are is fine: the tests' jobs mostly wait for disks and imports

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthInfo=socket={at}/munged.sock,cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
SlurmctldPort={ctl}
SlurmdPort={d}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=3
MailProg=/bin/true
SlurmUser={user}
SlurmdUser={user}
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    path = os.pathsep.join([os.environ["PATH"], *SBIN])
    return [name for name in NEEDED if not shutil.which(name, path=path)]


class Cluster:
    """Start it with `start`, end it with `stop`; commands of a user go through `call`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.at = folder
        path = os.pathsep.join([environment["PATH"], *SBIN])
        self.conf = folder / "slurm.conf"
        self.env = {**environment, "PATH": path, "SLURM_CONF": str(self.conf)}
        self.host = platform.node().split(".")[0]

    # ------------------------------------------------------------ daemons

    def start(self) -> None:
        for name in ("state", "spool"):
            (self.at / name).mkdir()
        key = self.at / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.at.chmod(0o755)
        ctl, d = _free_port(), _free_port()
        self.conf.write_text(CONF.format(
            host=self.host, at=self.at, ctl=ctl, d=d, user=getpass.getuser(),
            cpus=max(CPUS, os.cpu_count() or 1),
        ))  # fmt: skip
        places = {"socket": "sock", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        options = [f"--{option}={self.at}/munged.{end}" for option, end in places.items()]
        self.daemon("munged", "--force", "--num-threads=2", f"--key-file={key}", *options)
        self.start_controller()
        self.start_node()
        self.until(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T"), "an idle node", 30)

    def start_controller(self) -> None:
        self.daemon("slurmctld", "-f", str(self.conf))

    def start_node(self) -> None:
        self.daemon("slurmd", "-f", str(self.conf), "-N", self.host)

    def daemon(self, *command: str) -> None:
        """Run a program that goes into the background; retried while its old port is taken."""
        for _ in range(50):
            done = subprocess.run(command, env=self.env, capture_output=True, text=True)
            if done.returncode == 0:
                return
            time.sleep(0.2)
        raise AssertionError(f"{command[0]} does not start: {done.stderr or self.log(command[0])}")

    def log(self, name: str) -> str:
        path = self.at / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def stop(self) -> None:
        """End every job and every daemon that was started here."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            self.call("scancel", "-u", getpass.getuser())
        for pid in [self.pid("slurmd"), self.pid("slurmctld")]:
            _kill(pid, signal.SIGKILL)
        for _ in range(50):
            ours = self.processes()
            for pid in ours:
                _kill(pid, signal.SIGKILL)
            if not ours:
                break
            time.sleep(0.1)
        _kill(self.pid("munged"), signal.SIGTERM)

    def pid(self, name: str) -> int:
        try:
            return int((self.at / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return 0

    # ------------------------------------------------------------ what a user does

    def call(self, *command: Any, check: bool = True, timeout: float = 120) -> str:
        """Run a command; its output."""
        done = subprocess.run(
            [str(c) for c in command], env=self.env, capture_output=True, text=True, timeout=timeout
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def queue(self) -> list[tuple[str, str]]:
        """(job or job_task, state) of what waits or runs."""
        out = self.call("squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%i %T", check=False)
        return [(job, state) for job, state in (line.split() for line in out.splitlines())]

    def running(self) -> list[str]:
        return [job for job, state in self.queue() if state == "RUNNING"]

    def until(self, true: Any, what: str, seconds: float) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"no {what} in {seconds} s: {self.log('slurmctld')}"
            time.sleep(0.2)

    def answers(self) -> bool:
        return "UP" in self.call("scontrol", "ping", check=False)

    # ------------------------------------------------------------ processes

    def processes(self) -> list[int]:
        """Everything that belongs to this cluster, known by its environment."""
        return [pid for pid, _, _ in self._found()]

    def of_jobs(self, name: str = "") -> list[int]:
        """Processes of running jobs, and what watches over them, by a word of their command."""
        return [
            pid
            for pid, words, environment in self._found()
            if name in words and ("SLURM_JOB_ID=" in environment or "slurmstepd" in words)
        ]

    def stages(self, name: str = "") -> list[int]:
        """Processes of running steps, or of one by its name."""
        step = f"--step {name}" if name else ""
        return sorted(self.of_jobs(f"bin/afltool run run.toml -o . {step}".rstrip()))

    def _found(self) -> list[tuple[int, str, str]]:
        """(number, command line, environment)"""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environment = (entry / "environ").read_text(errors="replace")
                if f"SLURM_CONF={self.conf}" in environment and int(entry.name) != os.getpid():
                    words = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                    found.append((int(entry.name), words, environment))
        return found


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _kill(pid: int, number: int) -> None:
    if pid > 0:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
