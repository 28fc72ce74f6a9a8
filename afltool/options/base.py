"""Options of stages: one frozen pydantic dataclass a command, one line an option.

The command line, the keys of a TOML file, the signatures in Python, recipes and docs/commands.md
all follow from the fields of these classes::

    @dataclass(frozen=True)
    class Partition(Output):
        '''Assign the rows of a feature file to clients.'''

        features: Annotated[Path, Reads("features")] = Field(description="features to assign")
        out: Annotated[Path, Writes("partition")] = Field(description="partition file")
        clients: int | None = Field(default=None, ge=1, kw_only=True, description="how many")

A field's *role* is in its annotation: `Reads`, `Writes`, or a text that holds a path (`Holds`);
all others are options. Values are plain: texts, numbers, booleans, paths, tuples of them. A
`grammar` checks a text and gives it back as files hold it; whoever uses it parses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from dataclasses import dataclass as plain
from functools import cache
from inspect import Parameter, Signature
from numbers import Integral
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union
from typing import get_args as args_of
from typing import get_origin as origin_of

from pydantic import ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from ..errors import UsageError
from ..progress import log

OptionsT = TypeVar("OptionsT", bound="Options")
HeldT = TypeVar("HeldT")
GivenT = TypeVar("GivenT")

STREAM = "-"  # stdin or stdout
LINES = "lines"  # the kind of inputs of which '-' is a list that the stage reads by itself

# ---------------------------------------------------------------- what an annotation says

if TYPE_CHECKING:

    class Given(Generic[HeldT, GivenT]):
        """A field of one type; who makes an object may also give another one."""

        def __get__(self, of: object, cls: Any) -> HeldT: ...
        def __set__(self, of: object, value: GivenT) -> None: ...

    File = Given[Path, Path | str]
    Files = Given[tuple[Path, ...], Sequence[Path | str] | Path]
    Name = Given[str, Path | str]
else:
    File, Files, Name = Path, tuple[Path, ...], str


@plain(frozen=True)
class Reads:
    """A path, or several, of input files of a ``kind``.

    '-' stands for the path that the command before has printed; of `LINES` the stage reads it.
    """

    kind: str = ""


@plain(frozen=True)
class Writes:
    """The path of an output of a ``kind``."""

    kind: str = ""


FileIn = Annotated[Path | None, Reads()]
FileOut = Annotated[Path | None, Writes()]


@plain(frozen=True)
class Holds:
    """A text with a path in it: the first group of ``form``; by default a name, or a file's path.

    >>> Holds("[^=]*=(.*)").path("a=b.csv"), Holds("[^=]*=(.*)").path("a")
    ('b.csv', '')
    """

    form: str = "(.+)"

    def path(self, text: str) -> str:
        """The path; empty where there is none."""
        match = re.fullmatch(self.form, text, re.DOTALL)
        return match[1] if match else ""

    def absolute(self, text: str) -> str:
        """The text with an absolute path; a name where no file is stays as it is."""
        match = re.fullmatch(self.form, text, re.DOTALL)
        if not match or not match[1] or (self.form == Holds.form and not Path(text).is_file()):
            return text
        return text[: match.start(1)] + str(Path(match[1]).absolute()) + text[match.end(1) :]


@plain(frozen=True)
class Flat:
    """A dictionary of options of another class, such as a head's: each is one of the shell's.

    ``of``: MODULE:FUNCTION below `afltool` that says which; see `cli.commands.Command`.
    """

    of: str


@plain(frozen=True)
class Absent:
    """The value that a file means which does not name this option.

    An option that is added later says so, and is written only with another value: older files stay
    valid. It never changes, whatever becomes of the default.
    """

    value: Any


@plain(frozen=True)
class Choices:
    """A text that is one of these; ``known`` may be looked at only when it is needed."""

    known: Collection[str]

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[..., Any]) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(kind))

    def _checked(self, value: str | None) -> str | None:
        if value is not None and value not in self.known:
            raise ValueError
        return value


def grammar(parse: Callable[[Any], Any]) -> WrapValidator:
    """A text with a grammar: ``parse`` raises `UsageError`, or gives what its form in files is of.

    That form is what the field holds: a number, a text, or a tuple of them; ``parse`` takes it
    again.
    """

    def checked(value: Any, typed: Callable[[Any], Any]) -> Any:
        given = typed(value)
        return given if given is None else text_form(parse(given))

    return WrapValidator(checked)


def text_form(value: Any) -> Any:
    """What files and scripts hold of a parsed value: a number, its text, or a tuple of them."""
    if isinstance(value, tuple):
        return tuple(map(text_form, value))
    return value if isinstance(value, (str, int, float)) else str(value)


# ---------------------------------------------------------------- the base of all classes


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True),
)
class Options:
    """Base of all classes of options: each value has the type and range that its field declares.

    ``STAGE``: MODULE:FUNCTION below `afltool` that takes an object of a command's class;
    ``TELLS``: one that says more of what it returns, on stderr. ``PRINTS``: one that the command
    calls instead, and that prints. ``COMMON``: what ``-h`` shows; empty: the first ten.

    A recipe has every option but those of three sets: ``EXECUTION_ONLY``, on which no byte of a
    result depends; ``SELECTS``, which files are made and of whose rows, as each file's own recipe
    says; ``REFUSES``, which only refuse and are looked at at each call, whether the files are done
    or not. A class says its own, those of its bases join.

    Raises `UsageError` for a value that is not allowed, naming the option, its range and the value.
    """

    STAGE: ClassVar[str] = ""
    TELLS: ClassVar[str] = ""
    PRINTS: ClassVar[str] = ""
    COMMON: ClassVar[frozenset[str]] = frozenset()
    EXECUTION_ONLY: ClassVar[frozenset[str]] = frozenset()
    SELECTS: ClassVar[frozenset[str]] = frozenset()
    REFUSES: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="wrap")
    @classmethod
    def _made(cls: Any, given: Any, make: Callable[[Any], Any]) -> Any:
        if not isinstance(given, ArgsKwargs):
            return make(given)
        try:
            values = signature_of(cls).bind_partial(*given.args, **(given.kwargs or {})).arguments
        except TypeError as error:
            raise TypeError(f"{cls.STAGE.partition(':')[2] or cls.__name__}() {error}") from None
        taken = {k: _plain(kinds_of(fields_of(cls)[k]), v) for k, v in values.items()}
        try:
            return make(ArgsKwargs((), taken))
        except ValidationError as error:
            raise _said(cls, error, taken) from None

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together; for subclasses."""

    def changed(self) -> dict[str, Any]:
        """The options that are not their defaults, in the order of declaration."""
        every = ((name, getattr(self, name)) for name in fields_of(type(self)))
        return {k: v for k, v in every if v != default_of(type(self), k)}

    def needs(self, name: str, *others: str) -> None:
        """Refuse an option that is given without one of the others."""
        if name in self.changed() and not self.changed().keys() & set(others):
            known = _listed([*map(flag, others)])
            raise UsageError(f"{flag(name)} is used only with {known}: give that, or leave it out")

    def excludes(self, name: str, *others: str) -> None:
        """Refuse an option that is given beside one of the others."""
        for other in others:
            if {name, other} <= self.changed().keys():
                raise UsageError(
                    f"{flag(name)} is not used with {flag(other)}: leave one of them out"
                )

    def only_where(self, name: str, other: str, value: Any) -> None:
        """Refuse an option that is given where another one has not this value."""
        if name in self.changed() and (found := getattr(self, other)) != value:
            raise UsageError(
                f"{flag(name)} is used only with {flag(other)} {value}; found {found}: leave it out"
            )

    def stored(self, *but: str) -> dict[str, Any]:
        """The options as a recipe holds them: no paths of inputs and outputs, nothing `Absent`.

        ``but``: options in whose place the stage puts what follows from them.
        """
        sets = (set_of(type(self), one) for one in ("EXECUTION_ONLY", "SELECTS", "REFUSES"))
        left, found = {*but}.union(*sets), dict[str, Any]()
        for name, info in fields_of(type(self)).items():
            value = getattr(self, name)
            absent = any(isinstance(m, Absent) and m.value == value for m in info.metadata)
            if not (name in left or absent or role_of(info) or dict in map(_base, kinds_of(info))):
                found[name] = list(value) if isinstance(value, tuple) else value
        return found

    def to(self, cls: type[OptionsT], **more: Any) -> OptionsT:
        """Options of another class, with the values of the fields that both have."""
        shared = fields_of(cls).keys() & fields_of(type(self)).keys() - more.keys()
        return cls(**{**{name: getattr(self, name) for name in shared}, **more})

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@cache
def tell_once(text: str) -> None:
    """Say it once: options are made again and again."""
    log.info("%s", text)


def flag(name: str) -> str:
    """The name of an option on the command line.

    >>> flag("batch_size"), flag("as_json"), flag("list_")
    ('--batch-size', '--json', '--list')
    """
    return "--" + name.removeprefix("as_").strip("_").replace("_", "-")


def fields_of(cls: type[Any]) -> dict[str, Any]:
    """pydantic's record of each field, in order."""
    found: dict[str, Any] = cls.__pydantic_fields__
    return found


def set_of(cls: type[Any], name: str) -> frozenset[str]:
    """One of the sets of a class, with those of its bases."""
    return frozenset().union(*(vars(one).get(name, ()) for one in cls.__mro__))


def made_for(whose: str, cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """The options of a head or a method by name; `UsageError` for one that it lacks."""
    if strangers := sorted(values.keys() - fields_of(cls).keys()):
        known = ", ".join(sorted(fields_of(cls)))
        raise UsageError(f"{whose} has no option {strangers[0]!r}; it has {known}")
    return cls(**values)


def said_of(info: Any, kind: type[HeldT]) -> HeldT | None:
    """What an annotation says by an object of this class."""
    return next((m for m in info.metadata if isinstance(m, kind)), None)


def role_of(info: Any) -> Reads | Writes | None:
    """What a field is, if it is no option."""
    return said_of(info, Reads) or said_of(info, Writes)


def positional(cls: Any) -> list[str]:
    """The fields that the shell takes without a name."""
    named, of = getattr(cls, "NAMED", ()), fields_of(cls)
    first = (f.name for f in fields(cls) if not f.kw_only and f.name not in named)
    return [name for name in first if not said_of(of[name], Writes)]


@cache
def signature_of(cls: Any) -> Signature:
    """What a class is called with: its files, then its options by name."""
    of, found = fields_of(cls), list[Parameter]()
    for f in sorted(fields(cls), key=lambda f: bool(f.kw_only)):
        kind = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        default = Parameter.empty if of[f.name].is_required() else default_of(cls, f.name)
        found.append(Parameter(f.name, kind, default=default, annotation=of[f.name].annotation))
    return Signature(found)


def default_of(cls: type[Any], name: str) -> Any:
    """The default of an option; MISSING where it is required."""
    info = fields_of(cls)[name]
    return MISSING if info.is_required() else info.get_default(call_default_factory=True)


# ---------------------------------------------------------------- types, ranges, messages

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Literal: "a text",
    Path: "a path",
    dict: "names with values",
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def kinds_of(info: Any) -> list[Any]:
    """The types that a field allows, None left out.

    A list of several values is ``tuple[T, ...]``, a choice of texts a ``Literal``.
    """
    hint = info.annotation
    many = args_of(hint) if origin_of(hint) in (Union, UnionType) else (hint,)
    return [one for one in many if one is not NoneType]


def _base(kind: Any) -> Any:
    return origin_of(kind) or kind


def _plain(kinds: list[Any], value: Any) -> Any:
    """A value as the type that a field has: a path for a text, a tuple for a list."""
    several = [args_of(one)[0] for one in kinds if _base(one) is tuple]
    if several and isinstance(value, (list, tuple)):
        return tuple(_plain(several, one) for one in value)
    if several and len(kinds) == 1 and isinstance(value, (str, Path)):
        return (_plain(several, value),)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)  # NumPy's
    if isinstance(value, str) and Path in kinds and value and "\0" not in value:
        return Path(value)
    return str(value) if isinstance(value, Path) and Path not in kinds and str in kinds else value


def _said(cls: type[Any], error: ValidationError, values: Mapping[str, Any]) -> UsageError:
    """What pydantic refuses first, in the words of the command line."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    info, found = fields_of(cls)[name], values.get(name)
    if first["type"] == "missing":
        return UsageError(f"{flag(name)} is needed: {info.description}")
    if "than" in first["type"] or "finite" in first["type"]:
        inside = first["input"] if isinstance(found, tuple) else found
        return UsageError(f"{flag(name)} is {range_of(info) or 'a finite number'}; found {inside}")
    allowed = f"takes {' or '.join(map(_word, kinds_of(info)))}"
    if (words := choices_of(info)) and isinstance(found, str):
        allowed = f"is {_listed(list(words))}"
    return UsageError(f"{flag(name)} {allowed}; found {found!r}")


def _word(kind: Any) -> str:
    """A type in words."""
    base = _base(kind)
    return f"a list ({_word(args_of(kind)[0])} each)" if base is tuple else _WORDS[base]


def choices_of(info: Any) -> Collection[str]:
    """The only values of a text; empty where there are others."""
    listed = [args_of(one) for one in kinds_of(info) if _base(one) is Literal]
    known = said_of(info, Choices)
    return listed[0] if listed else known.known if known else ()


def range_of(info: Any) -> str:
    """The range of a number in words; empty where there is none."""
    every = ((word, name, m) for name, word in _BOUNDS.items() for m in info.metadata)
    limits = {w: _number(getattr(m, n)) for w, n, m in every if getattr(m, n, None) is not None}
    if limits.keys() == {"at least", "at most"}:
        return f"{limits['at least']} to {limits['at most']}"
    return ", ".join(f"{word} {number}" for word, number in limits.items())


def _number(value: float) -> str:
    """The number, with powers of two where they are shorter."""
    for offset, text in ((0, ""), (1, " − 1")):
        if isinstance(value, int) and value >= 2**20 and (value + offset).bit_count() == 1:
            return f"2^{(value + offset).bit_length() - 1}{text}"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _listed(words: list[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]


def help_of(info: Any, default: str | None = None) -> str:
    """The description of a field, with its choices or range and its default.

    A description may say what happens without the option: 'seed (default: 0)'. ``default``: what is
    said of it instead, where a command has another one.
    """
    about, said, unset = info.description.removesuffix(")").partition(" (default: ")
    value = None if info.is_required() else info.get_default(call_default_factory=True)
    if not (said or value is None or value is False or value in ((), {}, "")):
        unset = f"{value:g}" if isinstance(value, float) else str(value)
    new = (word for word in info.examples or () if word not in about)
    allowed = ", ".join(choices_of(info)) or range_of(info) or ", ".join(new)
    unset = (f"default: {unset}" if unset else "") if default is None else default
    beside = "; ".join(filter(None, [allowed, unset]))
    return f"{about if said else info.description}{f' ({beside})' if beside else ''}"


# ---------------------------------------------------------------- files that options name


def paths_of(cls: type[Any], name: str, value: Any) -> Iterator[Path]:
    """The files that the value of a field names, one or several."""
    info = fields_of(cls)[name]
    inside, value = said_of(info, Holds), _plain(kinds_of(info), value)
    for one in value if isinstance(value, tuple) else (value,):
        text = str(one) if isinstance(one, Path) else ""
        if isinstance(one, str) and inside:
            text = inside.path(one)
        if text not in ("", STREAM) and "\0" not in text:
            yield Path(text)


def absolute(cls: type[Any], name: str, value: Any) -> Any:
    """The value of a field with absolute paths in it."""
    if isinstance(value, tuple):
        return tuple(absolute(cls, name, one) for one in value)
    if isinstance(value, Path):
        return value.absolute()
    info = fields_of(cls)[name]
    inside = said_of(info, Holds)
    return inside.absolute(value) if inside and value not in (info.examples or ()) else value
