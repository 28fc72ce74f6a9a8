"""`slurm`: writes the job scripts of a run; one of them submits the others.

    RUN/slurm/common.sh         where the run is, the site's environment, how a stage runs in a job
    RUN/slurm/01-….sh …         one script a step
    RUN/slurm/submit.sh         submits what is missing; the solve job calls it for the next round
    RUN/slurm/plan.json         the steps, for `status`
    RUN/slurm/scripts.json      SHA-256 of each script that was written: one that somebody wrote or
                                changed is not replaced, and not removed
    RUN/slurm/parts, log, jobs  what passes between jobs, their logs, their numbers

All other files are those of `run`, with the same paths and recipes. So `run` continues what jobs
have begun, and jobs continue what `run` has begun.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import InputError, OutputExistsError, UsageError
from ...files.atomic import as_bytes, write_text
from ...files.outputs import make_folder
from ...files.own_files import check_own, is_plan
from ...files.schema import mismatch
from ...files.tables import write_json
from ...inputs import MOST_TEXT, distinct_files, read_bytes, read_json
from ...options.base import flag
from ..checks import EVALUATE, SOLVE, at_solve, check_before, check_own_files, difference_of, serves
from ..config import RunConfig, is_of_run, read_config
from ..layout import RunFolder
from ..made import Alone
from ..plan import LINK, first_steps
from . import scripts
from .site import Site
from .steps import jobs

RECORD = Path(RunFolder.SCRIPTS).name
#: What every script says that was written before there was a record.
_SOURCED = b"# Sourced by the scripts of this folder"
_MARKS = (_SOURCED, f"/{RunFolder.COMMON}".encode())


def script_texts(config: RunConfig, site: Site, folder: Path) -> dict[str, str]:
    """Every script of a run by its name, in the order of the stages; nothing is written.

    Raises what `check_before` raises, and `UsageError` for options that jobs do not take and arrays
    that are too long.
    """
    check_slurm(config)
    check_before(config, RunFolder(folder), here=False)
    config, folder, start = config.with_absolute_paths(), folder.absolute(), Path.cwd()
    planned = jobs(config, site, _at_solve(config, RunFolder(folder)))
    for step in planned:
        if step.tasks > site.max_array:
            other = "smaller --shards" if step.stage == "extract" else "larger --clients-per-task"
            raise UsageError(
                f"{step.name} would be an array of {step.tasks} tasks; Slurm takes "
                f"{site.max_array} here (--max-array): choose a {other}"
            )
    texts = {"common.sh": scripts.common(folder, config.first_head, site)}
    texts |= {f"{s.name}.sh": scripts.script(s, folder, site, start) for s in planned}
    return {**texts, "submit.sh": scripts.submitting(planned, folder, site)}


def check_slurm(config: RunConfig) -> None:
    """Refuse options of `run` that jobs cannot use."""
    if config.extract is not None and config.extract.store is not None:
        raise UsageError("--store is for run: jobs write the features into the run's folder")
    for name, value in config.here.changed().items():
        jobs = "; slurm --memory 4G says what a job may take" if name == "memory" else ""
        raise UsageError(
            f"{name.replace('_', '-')} = {value!r} among the options is for run on one machine: "
            f"leave it out{jobs}"
        )


def prepare(config: RunConfig, site: Site, folder: Path) -> Path:
    """Write the scripts of a run, its first head and links to given files; returns submit.sh.

    A folder of a run with other options is refused; another site's settings replace the old ones.
    """
    place = RunFolder(folder)
    texts = script_texts(config, site, folder)
    check_own_files(config, place)
    check_own(place.root, {RunFolder.PLAN: is_plan})
    check_scripts(place / RunFolder.SLURM, texts)
    make_folder(place / RunFolder.SLURM)
    _keep_options(config.with_absolute_paths(), place)
    for step in first_steps(config, place):
        made = step.stage.name == "head" and not _is_there(config, place.first_head)
        if made or step.stage.name == LINK:
            Alone().carry_out(step)
    write_scripts(place / RunFolder.SLURM, texts)
    own = [asdict(step) for step in jobs(config, site)]
    records = [{k: v for k, v in one.items() if k not in ("about", "body")} for one in own]
    write_json({"steps": records}, place / RunFolder.PLAN, overwrite=True)
    return place / RunFolder.SUBMIT


def check_submitting() -> None:
    """Refuse to submit from a machine without Slurm's commands."""
    if shutil.which("sbatch") is None:
        raise InputError(
            "cannot submit: is sbatch on this machine's PATH? Without --submit the scripts are "
            "written, and submit.sh may be called on a machine that has it"
        )


def submit(script: Path) -> list[str]:
    """Run submit.sh; what it says, a line for each job."""
    try:
        done = subprocess.run(
            ["bash", str(script.absolute())], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise InputError(f"cannot run bash: {error.strerror}") from None
    if done.returncode:
        answer = " ".join((done.stderr or done.stdout).split())
        raise InputError(
            f"{script} could not submit everything: {answer}; is sbatch on this machine's PATH? "
            "What is in the queue stays there; run the command again"
        )
    return done.stdout.splitlines()


def _keep_options(config: RunConfig, folder: RunFolder) -> None:
    """Write the options; those of a run that is there may differ in what is still to be done."""
    place = folder.options
    if is_of_run(place, config):
        return
    if place.exists():
        with distinct_files():  # it may be written again
            theirs = RunConfig(**read_config(place))
        start = config.first_head or folder.first_head
        done = {SOLVE: folder.head(1), EVALUATE: folder / RunFolder.METRICS}
        late = {stage for stage, output in done.items() if not output.exists()}
        if where := difference_of(theirs, config, start, but=late):
            raise OutputExistsError(
                f"{folder.options} is of a run with other options: {where}; choose another -o, or "
                "remove it"
            )
    with distinct_files():
        write_text(config.to_toml(), place, overwrite=True)


def _at_solve(config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    """What `solve` is told because the head, which was made before, has other options."""
    start = config.first_head or folder.first_head
    work = at_solve(config, start) if _is_there(config, start) else {}
    for name, value in work.items():
        if value is None or value is False:
            raise OutputExistsError(
                f"{start} was made with {flag(name)}, which a script cannot take back: choose "
                "another -o"
            )
    return work


def _is_there(config: RunConfig, start: Path) -> bool:
    return start.exists() and (config.first_head is not None or serves(config, start))


def check_scripts(folder: Path, texts: Mapping[str, str]) -> None:
    """Refuse to write scripts over one that this program did not write as it is.

    Raises:
        OutputExistsError: with the path, and what to do.
    """
    known = _record(folder)
    for name, text in texts.items():
        path = folder / name
        if path.exists() and _bytes(path) != as_bytes(text) and not _is_own(path, known):
            raise OutputExistsError(
                f"{path} exists and is not what this command writes, or was changed since: it "
                "would be lost; move it away, or choose another -o"
            )


def write_scripts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the scripts that `check_scripts` let pass; own ones that are not among them go."""
    known = _record(folder)
    there = [path for path in folder.glob("*.sh") if path.is_file() and _is_own(path, known)]
    digests = {path.name: {_sha(_bytes(path))} for path in there}
    for name, text in texts.items():
        digests.setdefault(name, set()).add(_sha(as_bytes(text)))
    kept = {name: sorted(names) for name, names in digests.items() if name in texts}
    with distinct_files():  # it was read just now
        write_json(kept, folder / RECORD, overwrite=True)  # first: the command may be killed
    for path in there:
        if path.name not in texts:  # of a step that this run no longer has
            path.unlink()
    for name, text in texts.items():
        write_text(text, folder / name, overwrite=True)


def _record(folder: Path) -> dict[str, list[str]] | None:
    """Digests of the scripts that were written here, by name; None where nothing tells."""
    path = folder / RECORD
    if not path.exists():
        return None
    with distinct_files():
        digests = read_json(path, "digests of scripts")
    if not isinstance(digests, dict) or any(mismatch(one, [str]) for one in digests.values()):
        raise OutputExistsError(f"{path} is not what this command writes there: move it away")
    return digests


def _is_own(path: Path, known: Mapping[str, list[str]] | None) -> bool:
    data = _bytes(path)
    if known is None:
        return any(mark in data for mark in _MARKS)
    return _sha(data) in known.get(path.name, [])


def _bytes(path: Path) -> bytes:
    with distinct_files():  # looking at an output is not reading it
        return read_bytes(path, MOST_TEXT)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
