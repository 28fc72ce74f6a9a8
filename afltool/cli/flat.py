"""The options that stand for a dictionary of a command: those of a head, and all of a run.

A function gets the words behind the command's name, the parameters that it has already, and what
its name decides; see `commands.Command`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..heads import HEADS, options_class
from ..options.base import get_fields
from ..options.look import KINDS, Picture
from ..options.statistics import NewHead
from .app import load_added_commands
from .commands import Command, Parameter, first_line, parameters

Words = Sequence[str]
Taken = Collection[str]
Given = Mapping[str, Any]


def head_commands(word: str) -> dict[str, Command]:
    """Those of `head`, one for each head."""
    says = {n: options_class(n).__doc__ or "" for n in ([word] if word in HEADS else HEADS)}
    return {
        name: Command(first_line(text), "Heads", NewHead, says=text, given={"name": name})
        for name, text in says.items()
    }


def plot_commands(word: str) -> dict[str, Command]:
    """Those of `plot`, one for each picture."""
    every = {
        name: Command(says, "Pictures", Picture, says=f"Draw {says}.", given={"kind": name})
        for name, says in KINDS.items()
    }
    if word not in every:
        every |= {
            k.split()[1]: one for k, one in load_added_commands().items() if k.startswith("plot ")
        }
    return every


def head_parameters(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """The options of the head that the command's name or the words say; of a file of any head."""
    pairs = ((a, b) for a, b in pairwise([*words, ""]) if a.partition("=")[0] == "--head")
    said = next((b if a == "--head" else a.partition("=")[2] for a, b in pairs), "linear")
    name = given.get("name", said)
    known = name in HEADS.data or name in HEADS
    return parameters(options_class(name)) if known else all_head_parameters()


def at_solve(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """All options that any head lets `solve` change."""
    return all_head_parameters(solving=True)


def all_head_parameters(solving: bool = False) -> list[Parameter]:
    """One parameter for each option that some head has."""
    found: dict[str, Parameter] = {}
    for cls in map(options_class, HEADS):
        skip = get_fields(cls).keys() - cls.changeable() if solving else ()
        said = dict.fromkeys(get_fields(cls), "default: by the head")
        for p in parameters(cls, skip=skip, defaults=said):
            found.setdefault(p.name, p)
    return list(found.values())


def run_parameters(
    words: Words, taken: Taken, given: Given, of: Any = head_parameters
) -> list[Parameter]:
    """Every option of a run, and those of the head that the words name."""
    from ..runs.config import DEFAULTS, OMITTED, PARTS

    found = dict[str, Parameter]()
    for part, (cls, names) in PARTS.items():
        how: dict[str, Any] = {"skip": OMITTED.get(part, ()), "rename": names}
        found |= {p.name: p for p in parameters(cls, **how, required=False, defaults=DEFAULTS)}
    theirs = {p.name: p for p in of(words, {*found, *taken}, given) if p.name != "seed"}
    return [p for p in {**found, **theirs, **found}.values() if p.name not in taken]


def job_parameters(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """Those of a run whose jobs are on other machines."""
    from ..runs.config import HERE, PARTS

    here = get_fields(PARTS[HERE][0])
    return [p for p in run_parameters(words, taken, given) if p.own not in here]


def cell_parameters(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """Those of the cells of a study, which may have any heads."""
    return run_parameters(words, taken, given, lambda *_: all_head_parameters())


def site_parameters(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """The settings of a cluster."""
    from ..runs.slurm.site import Site

    return parameters(Site, skip={"setup", "stages"})
