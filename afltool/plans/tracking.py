"""`--track mlflow:URI`: what runs, studies and baselines say by events, in an MLflow store.

Each command makes an MLflow run for each folder that it works on or finds done, below that of the
study which the folder lies in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import AflError, InputError, UsageError
from ..progress import Event, listening, log, stop_requested
from .layout import RunFolder

PARENT = "mlflow.parentRunId"
PICTURES = (".png", ".svg", ".pdf")
SQLITE = "sqlite:///"
MOST = 100  # parameters that MLflow takes at once
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

    A store that fails later is a warning: the work goes on.

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
        self.runs: dict[Path, str] = {}  # the runs of this command by their folders
        self.open: set[str] = set()
        try:
            _check_sqlite(uri)
            self.client: Any = MlflowClient(tracking_uri=uri)
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "afltool")
            found = self.client.get_experiment_by_name(name)
            self.experiment = found.experiment_id if found else self.client.create_experiment(name)
            if found is not None and found.lifecycle_stage != "active":
                raise InputError(f"its experiment {name} was deleted: restore it")
        except self.errors as error:
            why = _short(error)
            raise InputError(f"--track: the store {self.store} does not serve: {why}") from None

    def __call__(self, one: Event) -> None:
        ways: dict[str, Callable[[Path, Event], None]] = {
            "run_begun": self.begin,
            "round": self.round,
            "run_done": self.finish,
        }
        if one["event"] not in ways or self.client is None:
            return
        try:
            ways[one["event"]](Path(one["folder"]).absolute(), one)
        except self.errors as error:
            self.client = None
            why = _short(error)
            log.warning("--track: %s takes no more (%s); the work goes on", self.store, why)

    def begin(self, folder: Path, one: Event) -> None:
        above = next((self.runs[up] for up in folder.parents if up in self.runs), None)
        tags = {"afltool.folder": str(folder), **({PARENT: above} if above else {})}
        made = self.client.create_run(self.experiment, tags=tags, run_name=folder.name)
        self.runs[folder] = made.info.run_id
        self.open.add(made.info.run_id)

    def round(self, folder: Path, one: Event) -> None:
        metrics = self.metrics(one["figures"], one["round"], one)
        self.client.log_batch(self.runs[folder], metrics)

    def finish(self, folder: Path, one: Event) -> None:
        """All that is known in the end; the folder may have been done before."""
        if folder not in self.runs:
            self.begin(folder, one)
        name, summary = self.runs[folder], one["summary"]
        rounds = summary.get("rounds", [])
        last = {k: v for k, v in summary.items() if not rounds or k not in rounds[-1]}
        for number, figures in (*enumerate(rounds, 1), (len(rounds), last)):
            self.client.log_batch(name, self.metrics(figures, number, one))
        params = [self.entities.Param(*pair) for pair in _params(summary).items()]
        for start in range(0, len(params), MOST):
            self.client.log_batch(name, params=params[start : start + MOST])
        for key, digest in summary.get("digests", {}).items():
            self.client.set_tag(name, f"digest.{key}", digest)
        results = [Path(one["head"]), folder / RunFolder.SUMMARY] if "head" in one else []
        pictures = [path for path in folder.iterdir() if path.suffix in PICTURES]
        for path in (*results, *sorted(pictures)):
            self.client.log_artifact(name, str(path))
        self.client.set_terminated(name, "FINISHED")
        self.open.discard(name)

    def metrics(self, figures: Mapping[str, Any], step: int, one: Event) -> list[Any]:
        """The numbers among figures."""
        at = int(datetime.fromisoformat(one["time"]).timestamp() * 1000)
        numbers = {k: v for k, v in figures.items() if type(v) in (int, float)}
        return [self.entities.Metric(k, float(v), at, step) for k, v in numbers.items()]

    def close(self) -> None:
        """Runs that did not end are said to have failed, or to have been stopped."""
        for name in self.open if self.client is not None else ():
            try:
                self.client.set_terminated(name, "KILLED" if stop_requested() else "FAILED")
            except self.errors as error:
                log.warning("--track: %s takes no more (%s)", self.store, _short(error))
                return


def _params(summary: Mapping[str, Any]) -> dict[str, str]:
    """The options of a run as MLflow's parameters."""
    each = {**summary.get("options", {}), **summary.get("settings", {})}
    each |= {f"partition.{k}": v for k, v in summary.get("partition", {}).items()}
    each |= {k: summary[k] for k in ("method", "study") if k in summary}
    return {k: str(v)[:LONGEST] for k, v in each.items() if v is not None}


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
