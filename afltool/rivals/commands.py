"""The command `baseline`: each method has options of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..cli.app import Builder, Group, group
from ..cli.commands import Command, apart, parameters, show_folder, tracking, typer_command
from ..options.common import Printed, Tracked
from ..values.text import byte_text
from . import METHODS, method_class


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {"baseline": Command("train a baseline by gradients", "Studies", make=_group)}


def _group(_: Sequence[str]) -> Group:
    from .settings import Baseline

    return group("baseline", Baseline.__doc__ or "", _methods)


def _methods(_: str) -> Mapping[str, Builder]:
    return {name: partial(_command, name) for name in METHODS}


def _command(name: str, _: Sequence[str]) -> Any:
    from .settings import Baseline, BaselineFolder

    settings = parameters(method_class(name).settings_class, "Method")

    def call(track: str | None, as_json: bool | None, **values: Any) -> None:
        from .stage import baseline as stage

        with tracking(track):
            folder = stage(Baseline(name, **apart(values, settings, "settings")))
        show_folder(folder, BaselineFolder.SUMMARY, bool(as_json), _print)

    given = parameters(Baseline, skip={"method"}) + settings
    given += parameters(Tracked) + parameters(Printed)
    common = COMMON | {"features", "partition", "test", "out"}
    return typer_command(name, _says(name), call, given, common)


#: What ``-h`` shows.
COMMON = frozenset({"preset", "rounds", "lr", "epochs", "batch_size", "participation", "seed"})


def _print(summary: dict[str, Any]) -> None:
    """The three accuracies of a baseline and what they cost, on stderr."""
    from ..show.tables import tell_facts

    facts = []
    for name, one in summary["accuracies"].items():
        spread = f", spread {one['top1_spread']:.2%}" if "top1_spread" in one else ""
        largest = f", largest {one['top1_max']:.2%}" if "top1_max" in one else ""
        note = f" ({one['note']})" if "note" in one else ""
        text = f"{one['top1']:.2%}{largest}{spread} in round {one['round']}{note}"
        facts.append((name.replace("_", " "), text))
    up, down = (byte_text(summary[f"{way}_bytes"]) for way in ("upload", "download"))
    facts.append(("a client sends", f"{up} and gets {down} in all rounds"))
    seconds = f"clients {summary['client_seconds']:.1f}, server {summary['server_seconds']:.1f}"
    facts.append(("processor seconds", seconds))
    tell_facts(facts, summary["rounds"])


def _says(name: str) -> str:
    """The first paragraph of a method's docstring."""
    import inspect

    return (inspect.getdoc(method_class(name)) or "").split("\n\n")[0]
