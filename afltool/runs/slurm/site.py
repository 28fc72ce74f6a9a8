"""The settings of a cluster: options of `slurm`, or a TOML file of a site's defaults."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ... import inputs
from ...errors import CorruptFileError, UsageError
from ...options.base import Options, flag, get_fields, option
from ...options.features import default_store
from ...stages.stage import STAGES
from ...values.text import escape_line

ENVIRONMENT = "AFLTOOL_SITE"
JOBS = (*(name for name in STAGES if name != "head"), "study")  # a head is made at once
OF_A_STAGE = ("partition_name", "account", "qos", "time", "memory", "cpus", "gpus")
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")
MOST_KEPT = 1 << 20  # bytes of the settings in a folder
MOST = 10**6  # processors, clients …: more is a mistake


@dataclass(frozen=True, kw_only=True)
class Site(Options):
    partition_name: str | None = option(None, "Slurm's partition (queue)")
    account: str | None = option(None, "Slurm account")
    qos: str | None = option(None, "quality of service")
    time: str = option("01:00:00", "time limit per job, as for sbatch")
    memory: str = option("4G", "memory per job, as for sbatch")
    cpus: int = option(1, "CPUs per task", ge=1, le=MOST)
    gpus: int = option(0, "GPUs per extract task", ge=0, le=MOST)
    modules: str | None = option(None, "environment modules to load, comma-separated")
    venv: Path | None = option(None, "virtual environment with afltool")
    container: str | None = option(None, "Apptainer image with afltool: a .sif file or a URI")
    shards: int = option(8, "extract tasks per split", ge=1, le=MOST)
    clients_per_task: int = option(50, "clients per local-stats task", ge=1, le=MOST)
    at_once: int | None = option(None, "maximum number of concurrent array tasks", ge=1, le=MOST)
    _array = "tasks that Slurm takes in one array (MaxArraySize); of more each does more"
    max_array: int = option(1001, _array, ge=1, le=MOST)
    _warn = "seconds before the time limit at which a task is asked to stop (default: 120, at most "
    _warn += "a quarter of the limit)"
    warn: int | None = option(None, _warn, ge=1, le=65535)
    setup: tuple[str, ...] = ()  # further lines of bash, before afltool starts
    stages: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def check(self) -> None:
        if not _TIME.fullmatch(self.time) or not re.search("[1-9]", self.time):
            raise UsageError(
                f"--time is like 90, 01:30:00 or 2-12:00, and above 0; found {self.time!r}"
            )
        if not _MEMORY.fullmatch(self.memory) or not re.search("[1-9]", self.memory):
            raise UsageError(f"--memory is like 4000M or 4G, and above 0; found {self.memory!r}")
        if self.warn is not None and self.warn >= self.seconds():
            raise UsageError(
                f"--warn {self.warn} is seconds before the limit, and --time {self.time} is "
                f"{self.seconds()} s: give fewer, or a longer --time"
            )
        if self.container is not None and self.venv is not None:
            raise UsageError("--container has its own afltool: leave --venv out")
        for name in get_fields(Site):
            text = getattr(self, name)
            if isinstance(text, str) and not re.fullmatch(r"[\x21-\x7e]+", text):
                raise UsageError(f"{flag(name)} is one word; found {text!r}")

    def seconds(self) -> int:
        """The time limit; Slurm reads minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S."""
        days, _, clock = self.time.rpartition("-")
        parts = [int(one) for one in clock.split(":")]
        units = (3600, 60, 1) if days or len(parts) == 3 else (60, 1)
        whole = sum(n * unit for n, unit in zip(parts, units, strict=False))
        return int(days or 0) * 86400 + whole

    def warning(self) -> int:
        return self.warn or max(1, min(120, self.seconds() // 4))

    def shell(self) -> str:
        """Lines of bash before afltool in every script; "${run[@]}" is then its command."""
        store = f"export AFLTOOL_STORE={quote(default_store().absolute())}"
        modules = [quote(one) for one in self.modules.split(",")] if self.modules else []
        lines = [" ".join(["module load", *modules])] if modules else []
        if self.venv is not None:
            lines.append(f"source {quote(self.venv.absolute() / 'bin' / 'activate')}")
        lines += [*self.setup, store, "run=(afltool)"]
        if self.container is not None:
            address = "://" in self.container
            image = quote(self.container if address else Path(self.container).absolute())
            gpus = "${SLURM_JOB_GPUS:+--nv}"
            binds = '--bind "$PWD" --bind "$AFLTOOL_STORE"'
            lines[-1] = f"run=(apptainer exec {gpus} {binds} {image} afltool)"
        return "\n".join(lines)

    def save(self) -> dict[str, Any]:
        return {k: str(v) if isinstance(v, Path) else v for k, v in self.changed_options().items()}

    def of(self, stage: str) -> Site:
        own = {} if stage == "extract" else {"gpus": 0}
        return replace(self, **{**own, **self.stages.get(stage, {}), "stages": {}})


def quote(value: object) -> str:
    """``value`` as one word of a shell; `UsageError` for what a terminal cannot show."""
    text = str(value)
    if not text.isprintable():
        raise UsageError(
            f"a shell script cannot name {escape_line(text)}: it has a control character, or a "
            "byte that is not UTF-8; choose another name or folder"
        )
    return shlex.quote(text)


def make_site(given: Mapping[str, Any], file: Path | None = None) -> Site:
    """Options over those of a TOML file: ``file``, else the one that $AFLTOOL_SITE names."""
    named = os.environ.get(ENVIRONMENT)
    path = file or (Path(named) if named else None)
    site = Site(**{**({} if path is None else _read_site(path)), **given})
    for stage in JOBS:
        site.of(stage)  # refuses wrong values in the stage's table
    return site


def load_site(path: Path) -> Site:
    found = inputs.read_json(path, "the site's settings", MOST_KEPT)
    try:
        return Site(**found)
    except (UsageError, TypeError) as error:
        raise CorruptFileError(
            f"{path} is not what afltool slurm writes ({error}): run the same afltool slurm again"
        ) from None


def _read_site(path: Path) -> dict[str, Any]:
    site: dict[str, Any] = {"stages": {}}
    for key, value in inputs.read_toml(path, "the site").items():
        if not isinstance(value, dict):
            site |= _check_key(path, {key: value}, [*get_fields(Site)][:-1])
        elif key in JOBS:
            site["stages"][key] = _check_key(path, value, OF_A_STAGE)
        else:
            raise UsageError(f"{path}: [{key}] is not a stage; they are {', '.join(JOBS)}")
    return site


def _check_key(path: Path, entries: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    known = {inputs.check_key(path, k, names, "a site"): v for k, v in entries.items()}
    if not isinstance(known.get("setup", []), list):
        raise UsageError(f"{path}: setup is a list of lines; found {known['setup']!r}")
    if isinstance(known.get("modules"), list):
        known["modules"] = ",".join(map(str, known["modules"]))
    return known
