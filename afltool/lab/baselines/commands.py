"""The command `baseline`: each method has options of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

from ...cli.commands import Command, Parameter, parameters, show_folder, tracking
from ...options.common import Printed, Tracked
from ...values.text import byte_text
from . import METHODS, method_class
from .settings import Baseline, BaselineFolder


@dataclass(frozen=True)
class Train(Baseline, Tracked, Printed):
    """Train a baseline by gradients on cached features, simulated on this machine."""

    PRINTS: ClassVar = "lab.baselines.commands:train"
    COMMON: ClassVar = frozenset(
        {"preset", "rounds", "lr", "epochs", "batch_size", "participation", "seed"}
        | {"partition", "test", "out"}
    )


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {"baseline": Command("train a gradient-based baseline", "Studies", inside=_methods)}


def _methods(word: str) -> dict[str, Command]:
    found = {}
    for name in [word] if word in METHODS else METHODS:
        text = (inspect.getdoc(method_class(name)) or "").split("\n\n")[0]
        given = {"method": name}
        found[name] = Command(" ".join(text.split()), "Methods", Train, says=text, given=given)
    return found


def method_parameters(
    words: Sequence[str], taken: Any, given: Mapping[str, Any]
) -> list[Parameter]:
    """The options of the method that the command's name says."""
    return parameters(method_class(given["method"]).settings_class)


def train(o: Train) -> None:
    """Train a baseline, and print its folder."""
    from .stage import baseline

    with tracking(o.track):
        folder = baseline(o.to(Baseline))
    show_folder(folder, BaselineFolder.SUMMARY, o.as_json, _print)


def _print(summary: dict[str, Any]) -> None:
    """The three accuracies of a baseline and its bytes, on stderr."""
    from ...rendering.tables import print_facts

    facts = []
    for name, one in summary["accuracies"].items():
        note = f" ({one['note']})" if "note" in one else ""
        text = f"{one['top1']:.2%} in round {one['round']}{note}"
        facts.append((name.replace("_", " "), text))
    up, down = (byte_text(summary[f"{way}_bytes"]) for way in ("upload", "download"))
    facts.append(("a client sends", f"{up} and gets {down} in all rounds"))
    print_facts(facts, summary["rounds"])
