"""What an option is used with: said once, where the option is declared; else it is refused.

``only={"dtype": "int16"}`` at an option: it is used where ``dtype`` is int16. A condition is a
value of another option, a tuple of values, `GIVEN`, `ABSENT` or a `Where`; the option needs all of
them (``a|b``: a or b). A name that is no option of the class is a fact that the stage finds out
(`FACTS`) and says by `refuse_unused`. A class says in ``ONLY`` what its inherited options are used
with. Options of a command that are in no class have an `OnlyWith` in their annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, fields
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from ..errors import UsageError
from ..progress import log


@dataclass(frozen=True)
class Where:
    """A condition on another option's value: whether it ``holds``, and what is ``said`` of it."""

    said: str
    holds: Callable[[Any], bool]


class _Word(Enum):
    GIVEN = auto()  # the other option is not its default
    ABSENT = auto()  # the other option is its default


GIVEN, ABSENT = _Word
ANY = "|"  # between names of options: one of them does
Only = Mapping[str, Any]

#: What a stage finds out about its inputs, as a message says it.
FACTS = {
    "images": "images as inputs",
    "tables": "a table of images as input",
    "rounds": "a head of several rounds",
    "blocks": "layers that learn an Ω",
    "hidden": "layers that have an F_t of their own",
    "activated": "layers that have an activation",
}


def flag(name: str) -> str:
    """The name of an option on the command line.

    >>> flag("batch_size")
    '--batch-size'
    """
    return "--" + name.replace("_", "-")


def conditions(cls: type[Any]) -> dict[str, Only]:
    """What the options of a class are used with, by option; those always used are absent."""
    more = getattr(cls, "ONLY", {})
    every = {f.name: {**f.metadata.get("only", {}), **more.get(f.name, {})} for f in fields(cls)}
    return {name: only for name, only in every.items() if only}


def refuse_unused(
    options: Any, facts: Mapping[str, Any] | None = None, given: Collection[str] | None = None
) -> None:
    """Refuse an option that is not its default and is not used beside the others.

    ``facts``: what is known of the inputs; a condition on another fact is not looked at. ``given``:
    the options that were given, where ``options`` has filled in others.

    Raises:
        UsageError: with both options, and what would make the first one used.
    """
    known = {f.name: f for f in fields(options)}
    for name, only in conditions(type(options)).items():
        if getattr(options, name) == known[name].default or (
            given is not None and name not in given
        ):
            continue
        for other, wanted in only.items():
            others = other.split(ANY)
            if set(others) <= known.keys():
                pairs = [(getattr(options, one), known[one].default) for one in others]
                if not any(_met(wanted, value, default) for value, default in pairs):
                    _refuse(known[name], _said(name, others, wanted, pairs[0][0]))
            elif facts is not None and other in facts and not facts[other]:
                _refuse(
                    known[name],
                    f"{flag(name)} is used only with {FACTS[other]}, and there is none here: leave "
                    "it out",
                )


def _refuse(f: Field[Any], said: str) -> None:
    if not f.metadata["of_axes"]:
        raise UsageError(said)
    _tell(said)


@lru_cache(maxsize=64)
def _tell(said: str) -> None:
    """Say it once: options are made again and again."""
    log.info("%s", said)


@dataclass(frozen=True)
class OnlyWith:
    """In the annotation of a command's own option: what it is used with, by names of options."""

    only: Only


def refuse_unused_words(given: Mapping[str, Any], only: Mapping[str, Only]) -> None:
    """`refuse_unused` for what was given on a command line, by name as it is typed there."""
    for name in given.keys() & only.keys():
        for other, wanted in only[name].items():
            others = other.split(ANY)
            if not any(_met(wanted, given.get(one), None) for one in others):
                raise UsageError(_said(name, others, wanted, given.get(other)))


def _met(wanted: Any, value: Any, default: Any) -> bool:
    if wanted is GIVEN or wanted is ABSENT:
        return bool(value == default) == (wanted is ABSENT)
    if isinstance(wanted, Where):
        return wanted.holds(value)
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)


def _said(name: str, others: list[str], wanted: Any, found: Any) -> str:
    other, more = others[-1], ", ".join(map(flag, others[:-1]))
    if wanted is ABSENT or wanted is False:
        return f"{flag(name)} is not used with {flag(other)}: leave one of them out"
    if wanted is GIVEN or wanted is True:
        return (
            f"{flag(name)} is used only with {f'{more} or ' if more else ''}{flag(other)}: give "
            f"{'one of them' if more else 'that one'}, too, or leave {flag(name)} out"
        )
    if isinstance(wanted, Where):
        words = wanted.said
    else:
        words = " or ".join(map(str, wanted if isinstance(wanted, tuple) else (wanted,)))
    return f"{flag(name)} is used only with {flag(other)} {words}; found {found}: leave it out"
