"""Values of options, from files and programs, checked against the types of their fields."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from ..errors import UsageError

_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "Path": "a path",
}


def typed(annotation: Any, name: str, value: Any) -> Any:
    """The value of an option, of the type that its field says, such as 'float | None', or refused.

    The type may be its text, as a module that postpones annotations has it. A whole number does
    where a real one is wanted, a text where a path is, and a list or a tuple where there may be
    several values ('tuple[Path, ...]'); one value stands for a list of it.
    """
    kinds = kinds_of(annotation)
    if value is None and "None" in kinds:
        return None
    several = [kind[6:-6] for kind in kinds if kind.startswith("tuple[")]
    if several and isinstance(value, (list, tuple)):
        return tuple(typed(several[0], name, one) for one in value)
    if several and len(kinds) == 1 and isinstance(value, (str, Path)):
        return (typed(several[0], name, value),)
    if isinstance(value, bool):
        if "bool" in kinds:
            return value
    elif isinstance(value, Real) and "float" in kinds:
        return float(value)
    elif isinstance(value, Integral) and "int" in kinds:
        return int(value)
    elif isinstance(value, (str, Path)) and "Path" in kinds and _may_be_a_path(str(value)):
        return value if isinstance(value, Path) else Path(value)
    elif isinstance(value, (str, Path)) and "str" in kinds:
        return str(value)
    words = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    if not words and not several:
        raise TypeError(f"{annotation} is no type of an option: expected {', '.join(_WORDS)}")
    if several:
        words = " or ".join(filter(None, [words, f"a list ({_WORDS[several[0]]} each)"]))
    raise UsageError(f"--{name.replace('_', '-')} takes {words}; found {value!r}")


def kinds_of(annotation: Any) -> list[str]:
    """The types that a type allows, as texts.

    >>> kinds_of("int | None"), kinds_of(tuple[str, ...])
    (['int', 'None'], ['tuple[str, ...]'])
    """
    return [kind.strip() for kind in _spelled(annotation).split("|")]


def _spelled(annotation: Any) -> str:
    """A type as its text.

    >>> _spelled(float), _spelled(Path | None), _spelled(tuple[str, ...]), _spelled("int | None")
    ('float', 'Path | None', 'tuple[str, ...]', 'int | None')
    """
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_spelled, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return f"tuple[{_spelled(get_args(annotation)[0])}, ...]"
    return "None" if annotation is NoneType else str(annotation.__name__)


def _may_be_a_path(text: str) -> bool:
    return text != "" and "\0" not in text
