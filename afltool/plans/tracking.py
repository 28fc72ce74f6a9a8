"""`--track mlflow:URI`: what runs, studies and baselines say by events, in an MLflow store.

A command makes an MLflow run for each folder that it works on or finds done, below that of the
study which the folder lies in.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..errors import AflError, InputError, UsageError
from ..plugins import install
from ..progress import Event, listening, log, stop_requested
from .layout import RunFolder

PICTURES = (".png", ".svg", ".pdf")
SQLITE = "sqlite:///"
MAX_TEXT = 6000  # characters of a parameter
#: Unless a user wants it: nothing is sent to MLflow's makers, it does not wait minutes for a
#: server, its messages are not among ours.
QUIETLY = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


@contextmanager
def tracked(where: str) -> Iterator[None]:
    """In this block runs, studies and baselines are logged; a store that fails later is a warning.

    Raises:
        UsageError: ``where`` is not mlflow:URI, or MLflow is not installed.
        InputError: the store cannot be reached, or refuses the experiment.
    """
    kind, _, uri = where.partition(":")
    if kind != "mlflow" or not uri:
        raise UsageError(
            f"--track is mlflow:URI, such as mlflow:sqlite:///runs.db; found {where!r}"
        )
    os.environ.update({k: v for k, v in QUIETLY.items() if k not in os.environ})
    try:
        import mlflow
    except ModuleNotFoundError as error:
        raise UsageError(f"--track needs mlflow-skinny ({error}): {install('track')}") from None
    store = re.sub(r"//[^/@]*@", "//", uri)  # without a password
    try:
        if uri.startswith(SQLITE):  # MLflow would try for minutes what is no database
            with closing(sqlite3.connect(uri.removeprefix(SQLITE).partition("?")[0])) as file:
                file.execute("pragma schema_version")
        mlflow.set_tracking_uri(uri)
        experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "afltool"))
    except (mlflow.MlflowException, OSError, sqlite3.Error) as error:
        raise InputError(f"--track: the store {store} does not serve: {_short(error)}") from None
    listener = _Listener(mlflow, store, experiment.experiment_id)
    with listening(listener):
        try:
            yield
        finally:
            listener.close()


class _Listener:
    """Logs the runs of this command by their folders."""

    def __init__(self, mlflow: Any, store: str, experiment: str) -> None:
        self.mlflow, self.store, self.serves = mlflow, store, True
        self.client, self.experiment = mlflow.MlflowClient(), experiment
        self.runs: dict[Path, str] = {}
        self.open: set[str] = set()

    def __call__(self, one: Event) -> None:
        ways = {"run_begun": self.begin, "round": self.round, "run_done": self.finish}
        if one["event"] in ways:
            self.careful(ways[one["event"]], Path(one["folder"]).absolute(), one)

    def careful(self, do: Any, *given: Any) -> None:
        """Until the store has failed."""
        try:
            if self.serves:
                do(*given)
        except (self.mlflow.MlflowException, OSError, AflError) as error:
            self.serves = False
            why = _short(error)
            log.warning("--track: %s takes no more (%s); the work goes on", self.store, why)

    def begin(self, folder: Path, _: Event) -> None:
        above = next((self.runs[up] for up in folder.parents if up in self.runs), None)
        tags = {"afltool.folder": str(folder)} | ({"mlflow.parentRunId": above} if above else {})
        made = self.client.create_run(self.experiment, tags=tags, run_name=folder.name)
        self.runs[folder] = made.info.run_id
        self.open.add(made.info.run_id)

    def round(self, folder: Path, one: Event) -> None:
        self.figures(self.runs[folder], one["figures"], one["round"])

    def finish(self, folder: Path, one: Event) -> None:
        """All that is known in the end; the folder may have been done before."""
        if folder not in self.runs:
            self.begin(folder, one)
        run, summary = self.runs[folder], one["summary"]
        rounds = summary.get("rounds", [])
        last = {k: v for k, v in summary.items() if not rounds or k not in rounds[-1]}
        for number, figures in (*enumerate(rounds, 1), (len(rounds), last)):
            self.figures(run, figures, number)
        self.mlflow.log_params(_params(summary), run_id=run)
        for key, digest in summary.get("digests", {}).items():
            self.client.set_tag(run, f"digest.{key}", digest)
        files = [Path(one["head"]), folder / RunFolder.SUMMARY] if "head" in one else []
        for path in (*files, *sorted(p for p in folder.iterdir() if p.suffix in PICTURES)):
            self.client.log_artifact(run, str(path))
        self.end(run, "FINISHED")

    def figures(self, run: str, figures: Mapping[str, Any], step: int) -> None:
        numbers = {k: v for k, v in figures.items() if type(v) in (int, float)}
        self.mlflow.log_metrics(numbers, step=step, run_id=run)

    def end(self, run: str, status: str) -> None:
        self.client.set_terminated(run, status)
        self.open.discard(run)

    def close(self) -> None:
        """Runs that did not end are said to have failed, or to have been stopped."""
        for run in list(self.open):
            self.careful(self.end, run, "KILLED" if stop_requested() else "FAILED")


def _params(summary: Mapping[str, Any]) -> dict[str, str]:
    """The options of a run as MLflow's parameters."""
    each = {**summary.get("options", {}), **summary.get("settings", {})}
    each |= {f"partition.{k}": v for k, v in summary.get("partition", {}).items()}
    each |= {k: summary[k] for k in ("method", "study") if k in summary}
    return {k: str(v)[:MAX_TEXT] for k, v in each.items() if v is not None}


def _short(error: Exception) -> str:
    """The first sentence of what MLflow says, which may go on for many."""
    if "MLFLOW_ALLOW_FILE_STORE" in str(error):
        return "it writes no folders any more; give a database: --track mlflow:sqlite:///runs.db"
    return re.split(r"\. |\n", str(error).strip())[0][:300]
