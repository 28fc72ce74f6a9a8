"""Faults of a Slurm cluster, drawn from a seed and done to a run that is under way."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_cluster import Cluster


class Faults:
    """Each method does one kind of harm and says whether it found somebody to do it to."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.draw = cluster, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.hanging: dict[int, float] = {}  # stopped stages, since when

    def kinds(self) -> dict[str, tuple[int, Callable[[], bool]]]:
        """What is done, and how often compared with the others."""
        return {
            "kill -9 of a stage": (8, self.kill_stage),
            "kill -9 of a job's script": (2, self.kill_script),
            "kill -9 of slurmstepd": (2, self.kill_stepd),
            "kill -9 of slurmd, started again": (4, self.kill_slurmd),
            "kill -9 of slurmctld, started again": (5, self.kill_slurmctld),
            "node lost with all its processes": (3, self.lose_node),
            "node drained, then resumed": (4, self.drain),
            "SIGUSR1 as before a time limit": (8, self.warn),
            "time limit hit without a reaction": (1, self.hit_limit),
            "requeued by an administrator": (4, self.requeue),
        }

    def one(self) -> bool:
        """A fault of a kind that is drawn, none twice before every other came once.

        False if there was nothing to do it to.
        """
        kinds = self.kinds()
        kinds = {name: kind for name, kind in kinds.items() if not self.done[name]} or kinds
        name = self.draw.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        happened = kinds[name][1]()
        self.done[name] += happened
        return happened

    # ------------------------------------------------------------ processes

    def kill(self, pids: list[int]) -> bool:
        with suppress(IndexError, ProcessLookupError):
            os.kill(self.draw.choice(sorted(pids)), signal.SIGKILL)
            return True
        return False

    def kill_stage(self) -> bool:
        return self.kill(self.cluster.stages())

    def kill_script(self) -> bool:
        return self.kill(self.cluster.of_jobs("slurm_script"))

    def kill_stepd(self) -> bool:
        return self.kill(self.cluster.of_jobs("slurmstepd"))

    # ------------------------------------------------------------ daemons and the node

    def kill_slurmd(self) -> bool:
        os.kill(self.cluster.pid("slurmd"), signal.SIGKILL)
        time.sleep(self.draw.uniform(0, 1))
        self.cluster.start_node()
        return True

    def kill_slurmctld(self) -> bool:
        os.kill(self.cluster.pid("slurmctld"), signal.SIGKILL)
        time.sleep(self.draw.uniform(0, 2))
        self.cluster.start_controller()
        self.cluster.until(self.cluster.answers, "controller", 30)
        return True

    def lose_node(self) -> bool:
        """As when its power fails; the controller's timeout is not waited for but told."""
        pids = self.cluster.of_jobs()
        os.kill(self.cluster.pid("slurmd"), signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.node("DOWN")
        self.cluster.start_node()
        self.node("RESUME")
        return bool(pids)

    def drain(self) -> bool:
        self.node("DRAIN")
        time.sleep(self.draw.uniform(0.5, 2))
        self.node("RESUME")
        return True

    def put_away(self) -> None:
        """End the jobs whose end Slurm has not heard of; it asks after half an hour by itself."""
        self.node("DOWN")
        self.node("RESUME")

    def node(self, state: str) -> None:
        c = self.cluster
        c.call(
            "scontrol", "update", f"NodeName={c.host}", f"State={state}", "Reason=test", check=False
        )

    # ------------------------------------------------------------ jobs

    def of_job(self, *command: str) -> bool:
        running = self.cluster.running()
        if not running:
            return False
        self.cluster.call(*command, self.draw.choice(sorted(running)), check=False)
        return True

    def warn(self) -> bool:
        return self.of_job("scancel", "--batch", "--signal=USR1")

    def requeue(self) -> bool:
        return self.of_job("scontrol", "requeue")

    def hit_limit(self) -> bool:
        """A stage hangs and its time is over: Slurm looks every 30 seconds, then kills the job."""
        stages = self.cluster.stages()
        if not stages:
            return False
        with suppress(OSError):
            words = Path(f"/proc/{stages[0]}/environ").read_bytes().split(b"\0")
            job = next(w for w in words if w.startswith(b"SLURM_JOB_ID="))[13:].decode()
            os.kill(stages[0], signal.SIGSTOP)
            self.hanging[stages[0]] = time.monotonic()
            self.cluster.call("scontrol", "update", f"JobId={job}", "EndTime=now+1", check=False)
            return True
        return False

    def wake(self) -> None:
        """A controller that was killed may have forgotten the new limit: let the stage go on."""
        for pid, since in list(self.hanging.items()):
            if time.monotonic() - since > 45:
                del self.hanging[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def disturb(cluster: Cluster, run: Path, faults: Faults, wanted: int, patience: float) -> int:
    """Do ``wanted`` faults to a run, each while a stage runs, and see the run to its end.

    It is continued with the command that `status` gives; returns how often that was needed.
    """
    end, continued, alone = time.monotonic() + patience, 0, time.monotonic()
    while True:
        assert time.monotonic() < end, f"after {faults.done}: {look(cluster, run)}"
        faults.wake()
        if faults.done.total() < wanted and cluster.stages():
            faults.one()
            time.sleep(faults.draw.uniform(0, 0.4))
        else:
            time.sleep(0.5)
        if cluster.of_jobs() or not cluster.answers():
            alone = time.monotonic()
            continue
        if "drain" in cluster.call("sinfo", "-h", "-o", "%T", check=False):
            faults.node("RESUME")  # Slurm drains a node that could not start a job
        if cluster.running() and time.monotonic() - alone > 10:
            faults.put_away()
        found = look(cluster, run)
        if found["state"] == "done":
            return continued
        if found["continue"]:
            continued += 1
            cluster.call("bash", "-c", found["continue"], check=False)


def look(cluster: Cluster, run: Path) -> dict[str, Any]:
    return dict(json.loads(cluster.call("afltool", "-q", "status", run, "--json")))
