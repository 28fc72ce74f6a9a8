"""The settings of a cluster: options of `slurm`, or a TOML file of a site's defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ... import inputs
from ...errors import UsageError
from ...options import Options, flag, option, typed
from ...stages.stage import STAGES

ENVIRONMENT = "AFLTOOL_SITE"
JOBS = (*(name for name in STAGES if name != "head"), "study")  # a head is made at once
OF_A_STAGE = ("partition_name", "account", "qos", "time", "memory", "cpus", "gpus")
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")
MOST = 10**6  # processors, clients …: more is a mistake


@dataclass(frozen=True, kw_only=True)
class Site(Options):
    """Where jobs run and how large they are."""

    partition_name: str | None = option(None, "Slurm's partition (queue)", common=True)
    account: str | None = option(None, "account that is charged", common=True)
    qos: str | None = option(None, "quality of service")
    time: str = option("01:00:00", "time limit of a job, as sbatch takes it", common=True)
    memory: str = option("4G", "memory of a job, as sbatch takes it", common=True)
    cpus: int = option(1, "processors of a task", at_least=1, at_most=MOST, common=True)
    gpus: int = option(0, "GPUs of an extract task", at_least=0, at_most=MOST, common=True)
    modules: str | None = option(None, "environment modules to load, with commas between")
    venv: Path | None = option(None, "virtual environment that has afltool", common=True)
    _container = "Apptainer image that has afltool: a .sif file or an address (docs/slurm.md)"
    container: str | None = option(None, _container, common=True)
    shards: int = option(8, "tasks that extract a split", at_least=1, at_most=MOST, common=True)
    clients_per_task: int = option(
        50, "clients of a local-stats task", at_least=1, at_most=MOST, common=True
    )
    at_once: int | None = option(
        None, "most tasks of an array that run at the same time", at_least=1, at_most=MOST
    )
    max_array: int = option(
        1001, "tasks that Slurm takes in one array (MaxArraySize)", at_least=1, at_most=MOST
    )
    _warn = "seconds before the time limit at which a task is asked to stop"
    warn: int = option(120, _warn, at_least=1, at_most=65535, unit="seconds")
    setup: tuple[str, ...] = ()  # further lines of bash, before afltool starts
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def check(self) -> None:
        if not _TIME.fullmatch(self.time) or not re.search("[1-9]", self.time):
            raise UsageError(
                f"--time is like 90, 01:30:00 or 2-12:00, and above 0; found {self.time!r}"
            )
        if not _MEMORY.fullmatch(self.memory) or not re.search("[1-9]", self.memory):
            raise UsageError(f"--memory is like 4000M or 4G, and above 0; found {self.memory!r}")
        if self.container is not None and self.venv is not None:
            raise UsageError("--container has its own afltool: leave --venv out")
        for f in fields(self):
            text = getattr(self, f.name)
            if isinstance(text, str) and not re.fullmatch(r"[\x21-\x7e]+", text):
                raise UsageError(f"{flag(f.name)} is one word; found {text!r}")

    def of(self, stage: str) -> Site:
        """The settings for the jobs of one stage; only extract gets GPUs."""
        own = {} if stage == "extract" else {"gpus": 0}
        return replace(self, **{**own, **self.stages.get(stage, {}), "stages": {}})


def make_site(given: Mapping[str, Any], file: Path | None = None) -> Site:
    """Options over those of a TOML file: ``file``, else the one that $AFLTOOL_SITE names."""
    named = os.environ.get(ENVIRONMENT)
    path = file or (Path(named) if named else None)
    site = Site(**{**({} if path is None else _read(path)), **given})
    for stage in JOBS:
        site.of(stage)  # refuses wrong values in the stage's table
    return site


def _read(path: Path) -> dict[str, Any]:
    site: dict[str, Any] = {"stages": {}}
    for key, value in inputs.read_toml(path, "the site").items():
        if isinstance(value, dict):
            if key not in JOBS:
                raise UsageError(f"{path}: [{key}] is not a stage; they are {', '.join(JOBS)}")
            inner = [_entry(path, name, v, OF_A_STAGE) for name, v in value.items()]
            site["stages"][key] = dict(inner)
        else:
            name, value = _entry(path, key, value, [f.name for f in fields(Site)][:-1])
            site[name] = value
    return site


def _entry(path: Path, key: str, value: Any, known: Any) -> tuple[str, Any]:
    name = inputs.known_key(path, key, known, "a site")
    if name in ("setup", "modules") and isinstance(value, list):
        lines = [str(one) for one in value]
        return name, tuple(lines) if name == "setup" else ",".join(lines)
    if name == "setup":
        raise UsageError(f"{path}: setup is a list of lines; found {value!r}")
    return name, typed({f.name: f.type for f in fields(Site)}[name], name, value)
