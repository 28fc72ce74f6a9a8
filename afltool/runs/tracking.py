"""`--track mlflow:URI`: what runs, studies and baselines say by events, in an MLflow store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InputError, UsageError
from ..files.schema import SUMMARY
from ..plugins import install
from ..progress import Event, listening, log, stop_requested

QUIETLY = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


@contextmanager
def tracking(where: str) -> Iterator[None]:
    """In this block each folder that is worked on is a run of MLflow, below that of its study.

    A store that cannot be reached is an `InputError`; one that fails later is a warning.
    """
    kind, _, uri = where.partition(":")
    if kind != "mlflow" or not uri:
        raise UsageError(f"--track is mlflow:URI, as mlflow:sqlite:///runs.db; found {where!r}")
    os.environ.update({k: v for k, v in QUIETLY.items() if k not in os.environ})
    try:
        listener = _Listener(uri)
    except ModuleNotFoundError as error:
        raise UsageError(f"--track needs mlflow-skinny ({error}): {install('track')}") from None
    except Exception as error:  # of the store's own library
        raise InputError(f"--track: {_short(uri)} does not serve: {_short(error)}") from None
    try:
        with listening(listener):
            yield
    finally:
        for run in listener.open.values():
            with suppress(Exception):  # a store that has failed was a warning
                listener.client.set_terminated(run, "KILLED" if stop_requested() else "FAILED")


class _Listener:
    def __init__(self, uri: str) -> None:
        import mlflow

        mlflow.set_tracking_uri(uri)
        self.mlflow, self.client = mlflow, mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "afltool")
        self.experiment = mlflow.set_experiment(name).experiment_id
        self.open: dict[Path, str] = {}  # runs that have not ended, by their folders
        self.serves = True

    def __call__(self, one: Event) -> None:
        try:
            if self.serves and one["event"] in ("run_begun", "round", "run_done"):
                self.note(Path(one["folder"]).absolute(), one)
        except Exception as error:
            self.serves = False
            log.warning("--track: the store takes no more (%s); the work goes on", _short(error))

    def note(self, folder: Path, one: Event) -> None:
        if folder not in self.open:
            above = next((self.open[up] for up in folder.parents if up in self.open), None)
            tags = {"mlflow.parentRunId": above} if above else {}
            made = self.client.create_run(self.experiment, tags=tags, run_name=folder.name)
            self.open[folder] = made.info.run_id
        if "figures" in one:
            self.figures(self.open[folder], one["figures"], one["round"])
        if "summary" in one:
            self.finish(self.open[folder], folder, one)
            del self.open[folder]

    def finish(self, run: str, folder: Path, one: Event) -> None:
        summary = one["summary"]
        rounds = summary.get("rounds", [])
        last = {k: v for k, v in summary.items() if not rounds or k not in rounds[-1]}
        for number, figures in (*enumerate(rounds, 1), (len(rounds), last)):
            self.figures(run, figures, number)
        options = {**summary.get("options", {}), **summary.get("settings", {}), "folder": folder}
        texts = {k: str(v)[:6000] for k, v in options.items() if v is not None}
        self.mlflow.log_params(texts, run_id=run)
        for key, digest in summary.get("digests", {}).items():
            self.client.set_tag(run, f"digest.{key}", digest)
        for path in [one["head"], folder / SUMMARY] if "head" in one else []:
            self.client.log_artifact(run, str(path))
        self.client.set_terminated(run)

    def figures(self, run: str, figures: Event, step: int) -> None:
        numbers = {k: v for k, v in figures.items() if type(v) in (int, float)}
        self.mlflow.log_metrics(numbers, step=step, run_id=run)


def _short(text: object) -> str:
    """The first line, without a password in an address."""
    return re.sub(r"//[^/@]*@", "//", str(text).strip().partition("\n")[0])[:300]
