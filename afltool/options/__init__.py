"""The options of each stage: one dataclass a stage, one line an option; light to import.

The command line, the keys of a TOML file, `run`, the Slurm scripts, recipes and docs/commands.md
all follow from these fields. To add an option: a line in the class of its stage, and its use there.
A stage's options are a frozen dataclass derived from `Options`; each field is made by `option`.
Making an object checks every value, so the code that uses it needs no further check::

    @dataclass(frozen=True, kw_only=True)
    class PartitionOptions(Options):
        clients: int | None = option(None, "number of clients K", at_least=1)
        alpha: float | None = option(None, "Dirichlet α; small is uneven", above=0)
        _seed = "a help text that is too long for the line of its option stands above it"
        seed: int = option(0, _seed, at_least=0)

What an option is used with is said there, too; elsewhere it is refused. ``only={"dtype": "int16"}``
at an option: it is used where ``dtype`` is int16. A condition is a value of another option, a tuple
of values, `GIVEN`, `ABSENT` or a `Where`; the option needs all of them (``a|b``: a or b). A name
that is no option of the class is a fact that the stage finds out (`FACTS`) and says by
`refuse_unused`. A class says in ``ONLY`` what its inherited options are used with. Options of a
command that are in no class have an `OnlyWith` in their annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum, auto
from functools import lru_cache
from math import isfinite
from numbers import Integral, Real
from operator import ge, gt, le, lt
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import UsageError
from ..progress import log
from ..values.parsed import is_parsed, text_form


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
    """Refuse an option that is not its default and is not used beside the others; see `unused`.

    Raises:
        UsageError: with both options, and what would make the first one used.
    """
    for f, why in unused(options, facts, given):
        _refuse(f, why)


def unused(
    options: Any, facts: Mapping[str, Any] | None = None, given: Collection[str] | None = None
) -> Iterator[tuple[Field[Any], str]]:
    """Each option that is not its default and is not used beside the others, and what to say.

    ``facts``: what is known of the inputs; a condition on another fact is not looked at. ``given``:
    the options that were given, where ``options`` has filled in others.
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
                    yield known[name], _said(name, others, wanted, pairs[0][0])
            elif facts is not None and other in facts and not facts[other]:
                yield (
                    known[name],
                    f"{flag(name)} is used only with {FACTS[other]}, and there is none here: leave "
                    "it out",
                )


def _refuse(f: Field[Any], why: str) -> None:
    if not f.metadata["of_axes"]:
        raise UsageError(why)
    _tell(why)


@lru_cache(maxsize=64)
def _tell(why: str) -> None:
    """Say it once: options are made again and again."""
    log.info("%s", why)


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


_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "Path": "a path",
}

_BOUNDS = {"at least": ge, "above": gt, "at most": le, "below": lt}


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Collection[str] = (),
    examples: Iterable[str] = (),
    unit: str = "",
    unset: str = "",
    names_file: bool = False,
    path_in: Callable[[str], str] | None = None,
    writes: bool = False,
    absolute: Callable[[str], str] | None = None,
    in_result: bool = True,
    in_run: bool = True,
    common: bool = False,
    always: bool = False,
    at_solve: bool = False,
    of_any: str = "",
    parse: Callable[[Any], Any] | None = None,
    newer: bool = False,
    only: Only | None = None,
    of_axes: bool = False,
) -> Any:
    """A field of an options dataclass; without ``default`` the option is required.

    Args:
        default: the value where nothing is given; None stands for "not given".
        help: what it is, in a few plain words, without the range and the default.
        at_least, at_most, above, below: the range of a number. NaN and infinity are never in it.
        choices: the only values of a text.
        examples: some values of a text, which the shell completes; others are allowed.
        unit: of a number, such as "rows"; shown behind the range.
        unset: what happens when the option is not given, where the default is None.
        names_file: a text that may name a file; it is then made absolute in run.toml. Fields of
            type Path always are.
        path_in: of a text with a path inside: that path; see `options.shared`.
        writes: a path that is written; others are read.
        absolute: of a text with a path inside: the same text with that path made absolute.
        in_result: whether the result depends on it, so that it is part of the recipe. False for
            options such as --device or --threads that only say how the work is done.
        in_run: whether `run` and `slurm` take it; False where they set it themselves.
        common: shown by ``run -h``; the others only by ``--help-all``.
        always: written into scripts also where it is the default.
        at_solve: (heads) the statistics do not depend on it, so `solve` may still change it.
        of_any: (heads) what the help says of it where the head is not known.
        parse: makes the value (`values.parsed`) of what is given, whose type its parameter has; or
            raises `UsageError` with the grammar. Nothing else reads the text.
        only: what it is used with; elsewhere it is refused. See `options`.
        of_axes: an axis of studies, of whose cells some do not use it: a message says so instead.
        newer: (heads) left out of what files say where it is the default, so that older ones fit.
    """
    only = only or {}
    metadata = {k: v for k, v in locals().items() if k != "default"}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of all option classes: each value has the type and range that its field declares.

    Raises `UsageError` for a value that is not allowed, naming the option, its range and the value.
    """

    POSITIONAL: ClassVar[tuple[str, ...]] = ()  # those that programs may give without their names

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if "help" in f.metadata and value is not f.default:  # defaults are what `checked` gives
                object.__setattr__(self, f.name, checked(f, value))
        refuse_unused(self)
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together; for subclasses."""

    def told(self) -> dict[str, Any]:
        """What a script that calls the stage says: what is not default, or always to be said."""
        always = {f.name for f in fields(self) if f.metadata.get("always")}
        values = {f.name: text_form(getattr(self, f.name)) for f in fields(self)}
        said = self.chosen().keys() | {name for name in always if values[name] is not None}
        return {name: value for name, value in values.items() if name in said}

    def chosen(self) -> dict[str, Any]:
        """The options that are not their defaults, in the order of declaration."""
        every = ((f, getattr(self, f.name)) for f in fields(self))
        return {f.name: text_form(value) for f, value in every if value != f.default}


def checked(f: Field[Any], value: Any, name: str = "") -> Any:
    """The value of a field, as its type, in its range, one of its choices; or `UsageError`."""
    name, parse = name or f.name, f.metadata.get("parse")
    if parse is not None and is_parsed(value):
        return value
    value = typed(input_type(f), name, value)
    if parse is not None and value is not None:
        return parse(value)
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, (int, float)) and not isinstance(one, bool) and not _inside(f, one):
            raise UsageError(f"{flag(name)} is {range_of(f) or 'a finite number'}; found {one}")
    choices = f.metadata.get("choices")
    if choices and value is not None and value not in choices:
        raise UsageError(f"{flag(name)} is {_listed(tuple(choices))}; found {value!r}")
    return value


def input_type(f: Field[Any]) -> Any:
    """The type of what is given for a field: its own, or what its ``parse`` takes."""
    parse = f.metadata.get("parse")
    if parse is None:
        return f.type
    given = next(iter(get_type_hints(parse).values()))
    return given | None if f.default is None else given


def typed(annotation: Any, name: str, value: Any) -> Any:
    """The value of an option, of the type that its field says, such as 'float | None', or refused.

    The type may be its text, as a module that postpones annotations has it. A whole number does
    where a real one is wanted, a text where a path is, and a list or a tuple where there may be
    several values ('tuple[Path, ...]'); one value stands for a list of it, and a list of one for
    its value where both may be.
    """
    kinds = kinds_of(annotation)
    if value is None and "None" in kinds:
        return None
    several = [kind[6:-6] for kind in kinds if kind.startswith("tuple[")]
    if several and isinstance(value, (list, tuple)):
        values = tuple(typed(several[0], name, one) for one in value)
        return values[0] if len(values) == 1 and several[0] in kinds else values
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


def _limits(f: Field[Any]) -> Iterator[tuple[str, float]]:
    """The ends of a range as words, with their numbers."""
    for words in _BOUNDS:
        if (limit := f.metadata.get(words.replace(" ", "_"))) is not None:
            yield words, limit


def _inside(f: Field[Any], value: float) -> bool:
    return isfinite(value) and all(_BOUNDS[words](value, limit) for words, limit in _limits(f))


def range_of(f: Field[Any]) -> str:
    """The range of a number in words, with its unit; empty where there is none."""
    limits, unit = {words: _number(limit) for words, limit in _limits(f)}, f.metadata.get("unit")
    if limits.keys() == {"at least", "at most"}:
        words = f"{limits['at least']} to {limits['at most']}"
    else:
        words = ", ".join(f"{word} {number}" for word, number in limits.items())
    return f"{words} {unit}" if words and unit else words


def _number(value: float) -> str:
    """The number, with powers of two where they are shorter."""
    if isinstance(value, int) and value >= 10**5 and set(str(value)[1:]) == {"0"}:
        return f"10^{len(str(value)) - 1}"
    if isinstance(value, int) and value >= 2**20:
        for offset, text in ((0, ""), (1, " − 1")):
            if (value + offset).bit_count() == 1:
                return f"2^{(value + offset).bit_length() - 1}{text}"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]


def help_of(f: Field[Any], default: str | None = None) -> str:
    """The help text of a field: what it is, its choices or range, its default.

    ``default``: what is said of it instead, where a command has another one.
    """
    m = f.metadata
    if m.get("choices"):
        allowed = ", ".join(m["choices"])
    else:
        new = (word for word in m.get("examples", ()) if word not in m["help"])
        allowed = range_of(f) or ", ".join(new)
    notes = [allowed, _default(f) if default is None else default]
    beside = "; ".join(filter(None, notes))
    return f"{m['help']} ({beside})" if beside else str(m["help"])


def _default(f: Field[Any]) -> str:
    value = text_form(f.default)
    if value is MISSING:
        return "required"
    if value is None or value is False or value == ():
        unset = f.metadata.get("unset", "")
        return f"default: {unset}" if unset else ""
    return f"default: {value:g}" if isinstance(value, float) else f"default: {value}"


def given(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that ``cls`` has fields for."""
    names = {f.name for f in fields(cls)}
    return {k: v for k, v in values.items() if k in names}


Made = TypeVar("Made", bound=Options)


def made(cls: type[Made], values: Mapping[str, Any]) -> Made:
    """The options of a stage from values by name; `UsageError` where a required one is missing.

    A name that is no option is a mistake of the program that calls, so it is a `TypeError`.
    """
    for f in fields(cls):
        if f.default is MISSING and values.get(f.name) is None:
            raise UsageError(f"{flag(f.name)} is needed: {f.metadata['help']}")
    known = given(cls, values)
    if strangers := sorted(values.keys() - known.keys()):
        raise TypeError(f"unexpected keyword argument {strangers[0]!r}")
    return cls(**known)


def made_for(whose: str, cls: type[Made], values: Mapping[str, Any]) -> Made:
    """The options of a head or a method from values by name; `UsageError` for one that it lacks."""
    if strangers := sorted(values.keys() - given(cls, values).keys()):
        known = ", ".join(sorted(f.name for f in fields(cls)))
        raise UsageError(f"{whose} has no option {strangers[0]!r}; it has {known}")
    return cls(**values)
