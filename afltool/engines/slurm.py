"""`slurm`: a run as job scripts that an administrator can read, submitted by one of them.

    RUN/slurm/common.sh         where the run is, the site's environment, how a stage runs in a job
    RUN/slurm/01-….sh …         one script a step
    RUN/slurm/submit.sh         submits what is missing; the solve job calls it for the next round
    RUN/slurm/plan.json         the steps, for `status`
    RUN/slurm/parts, log, jobs  what passes between jobs, their logs, their numbers

Everything else lies where `run` puts it, made of the same recipes: either goes on where the other
has stopped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..errors import InputError, OutputExistsError
from ..heads import OPTIONS, make_head
from ..report.tables import write_json, write_text
from ..stages.head import head as make_head_file
from ..stages.pipeline import OPTIONS_FILE, head_options, link_features
from ..stages.run_config import (
    RunConfig,
    make_config,
    options_of,
    read_config,
    to_toml,
    with_absolute_paths,
)
from ..statistics import difference
from . import scripts
from .plan import Step, steps
from .site import Site

FOLDER, PLAN, SUBMIT = "slurm", "plan.json", "submit.sh"


def script_texts(config: RunConfig, site: Site, folder: Path) -> dict[str, str]:
    """Every script of a run by its name, in the order of the road."""
    config, folder, start = with_absolute_paths(config), folder.absolute(), Path.cwd()
    if config.head in OPTIONS:
        make_head(config.head, head_options(config))  # refuses wrong options before any job waits
    planned = steps(config, site)
    given = None if config.head in OPTIONS else Path(config.head)
    found = {"common.sh": scripts.common(folder, given, site)}
    found |= {f"{s.name}.sh": scripts.script(s, folder, site, start) for s in planned}
    return {**found, SUBMIT: scripts.submitting(planned, folder, site)}


def prepare(config: RunConfig, site: Site, folder: Path) -> Path:
    """Write the scripts of a run, its first head and links to features; returns submit.sh.

    A folder of a run with other options is refused; another site's settings replace the old ones.
    """
    texts = script_texts(config, site, folder)
    place = folder / FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {place}: {error.strerror}") from None
    _keep_options(with_absolute_paths(config), folder / OPTIONS_FILE)
    for split, given in (("train", config.train_features), ("test", config.test_features)):
        if given is not None:
            link_features(given, folder / f"01-features-{split}.h5")
    if config.head in OPTIONS:
        make_head_file(config.head, folder / "03-head0.h5", options=head_options(config))
    _remove_scripts(place, keep=texts)
    for name, text in texts.items():
        write_text(text, place / name)
    _write_plan(steps(config, site), place / PLAN)
    return place / SUBMIT


def submit(script: Path) -> list[str]:
    """Run submit.sh; what it says, a line for each job."""
    try:
        done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"cannot run bash: {error.strerror}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise InputError(
            f"{script} could not submit everything: {said}; is sbatch on this machine's PATH? "
            "What is in the queue stays there; run the command again"
        )
    return done.stdout.splitlines()


def _keep_options(config: RunConfig, place: Path) -> None:
    if not place.exists():
        write_text(to_toml(config), place)
        return
    theirs = options_of(make_config(read_config(place)))
    ours = options_of(config)
    where = difference(_plain(theirs), _plain(ours))
    if where:
        raise OutputExistsError(
            f"{place} is of a run with other options: {where}; choose another -o, or remove it"
        )


def _plain(options: dict[str, object]) -> dict[str, object]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in options.items()}


def _remove_scripts(place: Path, keep: Sequence[str] | dict[str, str]) -> None:
    """Steps that this run no longer has."""
    for old in place.glob("*.sh"):
        if old.name not in keep:
            old.unlink()


def _write_plan(planned: list[Step], place: Path) -> None:
    found = [{k: v for k, v in asdict(s).items() if k not in ("about", "body")} for s in planned]
    write_json({"steps": found}, place)
