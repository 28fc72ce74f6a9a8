"""What a cluster wants to be told: options of `slurm`, or a TOML file of site defaults."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..heads.options import option
from ..stages.run_config import read_toml
from ..typed import typed

ENVIRONMENT = "AFLTOOL_SITE"
STAGES = ("extract", "merge", "partition", "local-stats", "aggregate", "solve", "evaluate")
OF_A_STAGE = ("partition_name", "account", "qos", "time", "memory", "cpus", "gpus")
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")


@dataclass(frozen=True)
class Site:
    """Where jobs run and how large they are."""

    partition_name: str | None = option(None, "Slurm's partition (queue)")
    account: str | None = option(None, "account that is charged")
    qos: str | None = option(None, "quality of service")
    time: str = option("01:00:00", "time limit of a job, as sbatch takes it")
    memory: str = option("4G", "memory of a job, as sbatch takes it")
    cpus: int = option(1, "processors of a task")
    gpus: int = option(0, "GPUs of an extract task")
    modules: str | None = option(None, "environment modules to load, with commas between")
    venv: Path | None = option(None, "virtual environment that has afltool")
    shards: int = option(8, "tasks that extract a split")
    clients_per_task: int = option(50, "clients of a local-stats task")
    fan_in: int = option(16, "partial sums that an aggregate task adds up")
    at_once: int | None = option(None, "tasks of an array that run at the same time, at most")
    warn: int = option(120, "seconds before the time limit at which a task is asked to stop")
    setup: tuple[str, ...] = ()  # further lines of bash, before afltool starts
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("cpus", 1), ("gpus", 0), ("shards", 1), ("clients_per_task", 1),
                            ("fan_in", 2), ("warn", 1)):  # fmt: skip
            if getattr(self, name) < least:
                raise UsageError(f"{_flag(name)} is at least {least}; found {getattr(self, name)}")
        if self.at_once is not None and self.at_once < 1:
            raise UsageError(f"--at-once is at least 1; found {self.at_once}")
        if not _TIME.fullmatch(self.time):
            raise UsageError(f"--time is like 90, 01:30:00 or 2-12:00; found {self.time!r}")
        if not _MEMORY.fullmatch(self.memory):
            raise UsageError(f"--memory is like 4000M or 4G; found {self.memory!r}")
        for f in fields(self):
            text = getattr(self, f.name)
            if isinstance(text, str) and not re.fullmatch(r"[\x21-\x7e]+", text):
                raise UsageError(f"{_flag(f.name)} is one word; found {text!r}")

    def of(self, stage: str) -> Site:
        """The site as a job of one stage sees it: GPUs only where images are."""
        own = {} if stage == "extract" else {"gpus": 0}
        return replace(self, **{**own, **self.stages.get(stage, {}), "stages": {}})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def make_site(given: Mapping[str, Any], file: Path | None = None) -> Site:
    """Options over those of a TOML file: ``file``, else the one that $AFLTOOL_SITE names."""
    named = os.environ.get(ENVIRONMENT)
    path = file or (Path(named) if named else None)
    site = Site(**{**({} if path is None else _read(path)), **given})
    for stage in STAGES:
        site.of(stage)  # refuses what a table says wrongly
    return site


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"stages": {}}
    for key, value in read_toml(path).items():
        if isinstance(value, dict):
            if key not in STAGES:
                raise UsageError(f"{path}: [{key}] is no stage; they are {', '.join(STAGES)}")
            inner = [_entry(path, name, v, OF_A_STAGE) for name, v in value.items()]
            found["stages"][key] = dict(inner)
        else:
            name, value = _entry(path, key, value, [f.name for f in fields(Site)][:-1])
            found[name] = value
    return found


def _entry(path: Path, key: str, value: Any, known: Any) -> tuple[str, Any]:
    name = key.replace("-", "_")
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
        raise UsageError(f"{path}: {key!r} is no option of a site{hint}")
    if name in ("setup", "modules") and isinstance(value, list):
        lines = [str(one) for one in value]
        return name, tuple(lines) if name == "setup" else ",".join(lines)
    if name == "setup":
        raise UsageError(f"{path}: setup is a list of lines; found {value!r}")
    return name, typed({f.name: f.type for f in fields(Site)}[name], name, value)
