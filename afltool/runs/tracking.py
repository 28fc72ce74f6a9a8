"""`--track mlflow:URI`: what runs, studies and baselines say by events, in an MLflow store."""

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
from .folder import RunFolder

SQLITE, MAX_TEXT = "sqlite:///", 6000  # characters of a parameter
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
            for run in list(listener.open):
                listener.careful(listener.end, run, "KILLED" if stop_requested() else "FAILED")


class _Listener:
    """A run of MLflow for each folder that is worked on or found done, below that of its study."""

    def __init__(self, mlflow: Any, store: str, experiment: str) -> None:
        self.mlflow, self.client, self.experiment = mlflow, mlflow.MlflowClient(), experiment
        self.store, self.serves = store, True
        self.runs: dict[Path, str] = {}
        self.open: set[str] = set()

    def __call__(self, one: Event) -> None:
        if one["event"] in ("run_begun", "round", "run_done"):
            self.careful(self.note, Path(one["folder"]).absolute(), one)

    def careful(self, do: Any, *given: Any) -> None:
        """Until the store has failed."""
        try:
            if self.serves:
                do(*given)
        except (self.mlflow.MlflowException, OSError, AflError) as error:
            self.serves, why = False, _short(error)
            log.warning("--track: %s takes no more (%s); the work goes on", self.store, why)

    def note(self, folder: Path, one: Event) -> None:
        if folder not in self.runs:
            above = next((self.runs[up] for up in folder.parents if up in self.runs), None)
            tags = {"mlflow.parentRunId": above} if above else {}
            made = self.client.create_run(self.experiment, tags=tags, run_name=folder.name)
            self.runs[folder] = made.info.run_id
            self.open.add(made.info.run_id)
        if one["event"] == "round":
            self.figures(self.runs[folder], one["figures"], one["round"])
        elif one["event"] == "run_done":
            self.finish(self.runs[folder], folder, one)

    def finish(self, run: str, folder: Path, one: Event) -> None:
        """All that is known in the end; the folder may have been done before."""
        summary = one["summary"]
        rounds = summary.get("rounds", [])
        last = {k: v for k, v in summary.items() if not rounds or k not in rounds[-1]}
        for number, figures in (*enumerate(rounds, 1), (len(rounds), last)):
            self.figures(run, figures, number)
        options = {**summary.get("options", {}), **summary.get("settings", {})}
        options |= {f"partition.{k}": v for k, v in summary.get("partition", {}).items()}
        options |= {k: summary[k] for k in ("method", "study") if k in summary}
        texts = {k: str(v)[:MAX_TEXT] for k, v in options.items() if v is not None}
        self.mlflow.log_params({**texts, "folder": str(folder)}, run_id=run)
        for key, digest in summary.get("digests", {}).items():
            self.client.set_tag(run, f"digest.{key}", digest)
        files = [Path(one["head"]), folder / RunFolder.SUMMARY] if "head" in one else []
        pictures = (p for p in folder.iterdir() if p.suffix in (".png", ".svg", ".pdf"))
        for path in (*files, *sorted(pictures)):
            self.client.log_artifact(run, str(path))
        self.end(run, "FINISHED")

    def figures(self, run: str, figures: Mapping[str, Any], step: int) -> None:
        numbers = {k: v for k, v in figures.items() if type(v) in (int, float)}
        self.mlflow.log_metrics(numbers, step=step, run_id=run)

    def end(self, run: str, status: str) -> None:
        self.client.set_terminated(run, status)
        self.open.discard(run)


def _short(error: Exception) -> str:
    """The first sentence of what MLflow says, which may go on for many."""
    if "MLFLOW_ALLOW_FILE_STORE" in str(error):
        return "it writes no folders any more; give a database: --track mlflow:sqlite:///runs.db"
    return re.split(r"\. |\n", str(error).strip())[0][:300]
