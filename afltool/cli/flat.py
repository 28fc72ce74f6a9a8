"""The options that stand for a dictionary of a command: those of a head, and all of a run.

A function gets the words behind the command's name, the parameters that it has already, and what
its name decides; see `commands.Command`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..heads import HEADS, options_class
from ..options.base import fields_of
from ..options.look import KINDS, Picture
from ..options.statistics import NewHead
from .app import added
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
        every |= {k.split()[1]: one for k, one in added().items() if k.startswith("plot ")}
    return every


def of_head(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """The options of the head that the command's name or the words say; of a file of any head."""
    pairs = ((a, b) for a, b in pairwise([*words, ""]) if a.partition("=")[0] == "--head")
    said = next((b if a == "--head" else a.partition("=")[2] for a, b in pairs), "linear")
    name = given.get("name", said)
    known = name in HEADS.data or name in HEADS
    return parameters(options_class(name)) if known else of_heads()


def at_solve(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """All options that any head lets `solve` change."""
    return of_heads(solving=True)


def of_heads(solving: bool = False) -> list[Parameter]:
    """One parameter for each option that some head has."""
    found: dict[str, Parameter] = {}
    for cls in map(options_class, HEADS):
        skip = fields_of(cls).keys() - cls.changeable() if solving else ()
        said = dict.fromkeys(fields_of(cls), "default: by the head")
        for p in parameters(cls, skip=skip, defaults=said):
            found.setdefault(p.name, p)
    return list(found.values())


def of_run(words: Words, taken: Taken, given: Given, of: Any = of_head) -> list[Parameter]:
    """Every option of a run, and those of the head that the words name."""
    from ..runs.config import DEFAULTS, OMITTED, PARTS

    found = dict[str, Parameter]()
    for part, (cls, names) in PARTS.items():
        how: dict[str, Any] = {"skip": OMITTED.get(part, ()), "rename": names}
        found |= {p.name: p for p in parameters(cls, **how, required=False, defaults=DEFAULTS)}
    theirs = {p.name: p for p in of(words, {*found, *taken}, given) if p.name != "seed"}
    return [p for p in {**found, **theirs, **found}.values() if p.name not in taken]


def of_jobs(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """Those of a run whose jobs are on other machines."""
    from ..runs.config import HERE, PARTS

    here = fields_of(PARTS[HERE][0])
    return [p for p in of_run(words, taken, given) if p.own not in here]


def of_cells(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """Those of the cells of a study, which may have any heads."""
    return of_run(words, taken, given, lambda *_: of_heads())


def of_site(words: Words, taken: Taken, given: Given) -> list[Parameter]:
    """The settings of a cluster."""
    from ..runs.slurm.site import Site

    return parameters(Site, skip={"setup", "stages"})
