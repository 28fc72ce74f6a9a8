"""`--track mlflow:URI`: what runs, studies and baselines say by events, in an MLflow store.

A folder has one run of MLflow for each store, whose id is in `IDS` beside the files. The same
command goes on with it, also after an interruption; other options or another head make a new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import AflError, InputError, UsageError
from ..files.own_files import check_own, of_json
from ..files.tables import write_json
from ..inputs import distinct_files, read_json
from ..progress import Event, listening, log, stop_requested
from ..values.arrays import canonical_json
from .layout import RunFolder
from .summary import plain

IDS = "mlflow.json"  # in the folder of a run: the ids of its MLflow runs by store
HEAD, OPTIONS, PARENT = "digest.head", "afltool.options", "mlflow.parentRunId"  # tags
PICTURES = (".png", ".svg", ".pdf")
SQLITE = "sqlite:///"
AT_ONCE = 90  # parameters or metrics in one request: MLflow takes up to 100 parameters
LONGEST = 6000  # characters of a parameter
#: What MLflow does unless a user wants it: nothing is sent to its makers, it does not wait minutes
#: for a server, its messages are not among ours.
QUIETLY = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


@contextmanager
def tracked(where: str) -> Iterator[None]:
    """In this block runs, studies and baselines are logged.

    A store that fails later is a warning: the work goes on, and the same command again logs what is
    missing.

    Raises:
        UsageError: ``where`` is not mlflow:URI, or MLflow is not installed.
        InputError: the store cannot be reached, or refuses the experiment.
    """
    kind, _, uri = where.partition(":")
    if kind != "mlflow" or not uri:
        raise UsageError(
            f"--track is mlflow:URI, such as mlflow:sqlite:///runs.db; found {where!r}"
        )
    with closing(_Mlflow(uri)) as store, listening(store):
        yield


class _Mlflow:
    """What is logged, and where."""

    def __init__(self, uri: str) -> None:
        self.store = re.sub(r"//[^/@]*@", "//", uri)  # without a password
        for name, value in QUIETLY.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient, entities
            from mlflow.exceptions import MlflowException
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--track needs mlflow-skinny ({error}): pip install 'afltool[track]'"
            ) from None
        self.entities, self.errors = entities, (MlflowException, OSError, AflError)
        try:
            _check_sqlite(uri)
            self.client = MlflowClient(tracking_uri=uri)
            self.experiment = self._experiment()
        except self.errors as error:
            why = _short(error)
            raise InputError(f"--track: the store {self.store} does not serve: {why}") from None
        self.whole = True  # nothing failed so far
        self.open: dict[Path, str] = {}  # runs under way by their folders
        self.done: dict[Path, str] = {}
        self.points: dict[str, dict[tuple[str, int], float]] = {}  # metrics that a run has

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "afltool")
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            return str(self.client.create_experiment(name))
        if experiment.lifecycle_stage != "active":
            raise InputError(f"its experiment {name} was deleted: restore it")
        return str(experiment.experiment_id)

    def __call__(self, one: Event) -> None:
        ways: dict[str, Callable[[Path, Event], None]] = {
            "run_begun": self.begin,
            "round": self.round,
            "run_done": self.finish,
        }
        if one["event"] in ways and self.whole:
            with self._warned():
                ways[one["event"]](Path(one["folder"]).absolute(), one)

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Inside, a failure ends the logging alone."""
        try:
            yield
        except self.errors as error:
            self.whole = False
            again = "the work goes on, and the same command again logs what is missing"
            log.warning("--track: %s takes no more (%s); %s", self.store, _short(error), again)

    def begin(self, folder: Path, one: Event) -> None:
        options = sha256(canonical_json(plain_options(one["options"])).encode()).hexdigest()
        known = self.known(folder)
        if known is None or known.data.tags.get(OPTIONS) != options:
            self.open[folder] = self.new(folder, {OPTIONS: options, "afltool.what": one["what"]})
        else:
            self.open[folder] = self.again(known)
            self.client.update_run(known.info.run_id, status="RUNNING")

    def known(self, folder: Path) -> Any:
        """The run that this folder has in this store, if it is still there."""
        with suppress(*self.errors, KeyError, TypeError), distinct_files():
            run = self.client.get_run(read_json(folder / IDS, "ids")["mlflow"][self.store])
            return run if run.info.lifecycle_stage == "active" else None
        return None

    def again(self, run: Any) -> str:
        """The id of a run that is there, when its metrics are known."""
        name = str(run.info.run_id)
        if name not in self.points:
            every = (self.client.get_metric_history(name, key) for key in run.data.metrics)
            self.points[name] = {(m.key, m.step): m.value for each in every for m in each}
        return name

    def new(self, folder: Path, tags: Mapping[str, str]) -> str:
        """The id of a new run, below that of the study that the folder lies in."""
        runs = {**self.done, **self.open}
        above = [{PARENT: runs[one]} for one in folder.parents if one in runs]
        more = {"afltool.folder": str(folder), **tags, **(above[0] if above else {})}
        made = self.client.create_run(self.experiment, tags=more, run_name=folder.name)
        self.points[made.info.run_id] = {}
        check_own(folder, {IDS: of_json({"mlflow": dict})})
        with distinct_files():
            place = folder / IDS
            ids = read_json(place, "ids")["mlflow"] if place.exists() else {}
            ids = {**ids, self.store: made.info.run_id}
            write_json({"mlflow": ids}, place, overwrite=True)
        return str(made.info.run_id)

    def round(self, folder: Path, one: Event) -> None:
        self.log(self.open[folder], self.metrics(one["figures"], one["round"], one))

    def finish(self, folder: Path, one: Event) -> None:
        """All that is known in the end, unless it is there already; pictures may be new."""
        summary, digest = one["summary"], one["summary"].get("head_digest")
        known = self.known(folder)
        if known is None or known.data.tags.get(HEAD, digest) != digest:
            self.new(folder, {})
            known = self.known(folder)
        name = self.again(known)
        for path in sorted(folder.iterdir()):
            if path.suffix in PICTURES:
                self.client.log_artifact(name, str(path))
        if digest is None or HEAD not in known.data.tags:
            self.all_of(name, summary, one, known.data.params)
        self.client.set_terminated(name, "FINISHED")
        self.open.pop(folder, None)
        self.done[folder] = name

    def all_of(
        self, name: str, summary: Mapping[str, Any], one: Event, there: Mapping[str, str]
    ) -> None:
        rounds = summary.get("rounds", [])
        metrics = self.metrics(summary, len(rounds), one)
        for number, figures in enumerate(rounds, 1):
            metrics += self.metrics(figures, number, one)
        each = {**summary.get("options", {}), **summary.get("settings", {})}
        each |= {f"partition.{k}": v for k, v in summary.get("partition", {}).items()}
        each |= {k: summary[k] for k in ("method", "study") if k in summary}
        params = {k: str(v)[:LONGEST] for k, v in each.items() if v is not None and k not in there}
        self.log(name, metrics, [self.entities.Param(*pair) for pair in params.items()])
        if "head" in one:
            self.client.log_artifact(name, str(one["head"]))
            self.client.log_artifact(name, str(Path(one["head"]).with_name(RunFolder.SUMMARY)))
        tags = {f"digest.{k}": v for k, v in summary.get("digests", {}).items()}
        for pair in tags.items():  # that of the head last: with it all is there
            self.client.set_tag(name, *pair)

    def metrics(self, figures: Mapping[str, Any], step: int, one: Event) -> list[Any]:
        """The numbers among figures."""
        at = int(datetime.fromisoformat(one["time"]).timestamp() * 1000)
        numbers = {k: v for k, v in figures.items() if type(v) in (int, float)}
        return [self.entities.Metric(k, float(v), at, step) for k, v in numbers.items()]

    def log(self, name: str, metrics: list[Any], params: list[Any] | None = None) -> None:
        """Log what a run has not; of two values at one step the last one."""
        has, given = self.points[name], {(m.key, m.step): m for m in metrics}
        new, more = [m for at, m in given.items() if has.get(at) != m.value], params or []
        for start in range(0, max(len(new), len(more)), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            self.client.log_batch(name, new[part], more[part])
        has.update({at: m.value for at, m in given.items()})

    def close(self) -> None:
        """Runs that did not end are said to have failed, or to have been stopped."""
        for name in self.open.values() if self.whole else ():
            with self._warned():
                self.client.set_terminated(name, "KILLED" if stop_requested() else "FAILED")


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: plain(value) for name, value in options.items()}


def _short(error: Exception) -> str:
    """The first sentence of what MLflow says, which may go on for many."""
    if "MLFLOW_ALLOW_FILE_STORE" in str(error):
        return (
            "MLflow writes no folders any more; give a database: --track mlflow:sqlite:///runs.db"
        )
    return re.split(r"\. |\n", str(error).strip())[0][:300]


def _check_sqlite(uri: str) -> None:
    """Refuse a file that no database can be: MLflow would try again for minutes."""
    if uri.startswith(SQLITE):
        import sqlite3

        try:
            with closing(sqlite3.connect(uri.removeprefix(SQLITE).partition("?")[0])) as file:
                file.execute("pragma schema_version")
        except sqlite3.Error as error:
            raise InputError(str(error)) from None
