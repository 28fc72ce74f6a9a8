"""Options of stages: one frozen pydantic dataclass a command, one line an option.

The command line, the keys of a TOML file, the signatures in Python, recipes and docs/commands.md
follow from the fields. What is no option, and a text that holds a path (`Holds`), says so::

    features: Annotated[Path, Reads("features")] = Field(description="features to assign")
    clients: int | None = option(None, "number of clients", ge=1)

Values are plain: texts, numbers, booleans, paths, tuples of them. A `grammar` checks a text, and
whoever uses it parses it.
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

from pydantic import ConfigDict, Field, ValidationError, WrapValidator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from ..errors import UsageError
from ..progress import log
from ..renamed import instead_of

OptionsT = TypeVar("OptionsT", bound="Options")
HeldT = TypeVar("HeldT")
GivenT = TypeVar("GivenT")

STREAM = "-"  # stdin or stdout

# ---------------------------------------------------------------- what a field says

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


def option(default: Any, description: str, **more: Any) -> Any:
    """A field with a default; ``more``: its bounds (ge, gt, le, lt) and other words of pydantic."""
    return Field(default=default, description=description, **more)


class Word(str):
    """What a field says; equal to its own class alone, since typing keeps annotations by it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str.__eq__(self, str(other))

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class Reads(Word):
    """A path of an input, or several, of a kind; '-' is the path that the command before printed.

    Of the kind `LINES` it is a list of paths that the stage reads by itself.
    """


class Writes(Word):
    """The path of an output of a kind."""


class Holds(Word):
    """A text with a path in it, the first group of this pattern; by default a name or a path."""

    def parts(self, text: str) -> tuple[str, str, str]:
        """What is before the path, the path, which may be empty, and what is behind it."""
        match = re.fullmatch(self or "(.+)", text, re.DOTALL)
        at, end = match.span(1) if match else (0, 0)
        return text[:at], text[at:end], text[end:]

    def path(self, text: str) -> str:
        """The path; empty where there is none."""
        return self.parts(text)[1]


class Stored(Word):
    """The key of an option in files and recipes, where it is not the option's name."""


class Flat(Word):
    """Of a dictionary of options of another class, such as a head's: each is one of the shell's.

    MODULE:FUNCTION below `afltool` says which; see `cli.commands.Command`.
    """


LINES = Reads("lines")
Input = Annotated[File, Reads()]
Inputs = Annotated[Files, Reads()]
Result = Annotated[File, Writes()]
FileIn = Annotated[Path | None, Reads()]
FileOut = Annotated[Path | None, Writes()]
HeadIn = Annotated[Name, Reads(), Holds()]


@plain(frozen=True)
class Absent:
    """The value that a file means which does not name this option; it never changes.

    An option that is added later is written only with another value: older files stay valid.
    """

    value: Any


@plain(frozen=True)
class Choices:
    """A text that is one of these; ``known`` is looked at only when it is needed."""

    known: Collection[str]

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[..., Any]) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(kind))

    def _checked(self, value: str | None) -> str | None:
        if value is not None and value not in self.known:
            raise ValueError
        return value


def grammar(parse: Callable[[Any], Any]) -> WrapValidator:
    """A text that ``parse`` takes, or refuses by `UsageError`.

    The field holds what files do, a number, a text, or a tuple of them; ``parse`` takes it again.
    """

    def stored(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(stored, value))
        return value if isinstance(value, (str, int, float)) else str(value)

    def checked(value: Any, typed: Callable[[Any], Any]) -> Any:
        given = typed(value)
        return given if given is None else stored(parse(given))

    return WrapValidator(checked)


# ---------------------------------------------------------------- the base of all classes


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True),
)
class Options:
    """Base of all classes of options; `UsageError` names an option whose value is not allowed.

    ``STAGE``: MODULE:FUNCTION below `afltool` that takes an object of a command's class;
    ``TELLS``: one that says more of what it returns, on stderr. ``PRINTS``: one that the command
    calls instead, and that prints. ``COMMON``: what ``-h`` shows; empty: the first ten.

    A recipe has every option but those of three sets, which join those of the bases:
    ``EXECUTION_ONLY``, on which no byte of a result depends; ``SELECTS``, which files are made and
    of whose rows, as each file's own recipe says; ``REFUSES``, which are looked at at each call.
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
        values = make_signature(cls).bind_partial(*given.args, **(given.kwargs or {})).arguments
        taken = {k: _plain(get_types(get_fields(cls)[k]), v) for k, v in values.items()}
        try:
            return make(ArgsKwargs((), taken))
        except ValidationError as error:
            raise _validation_message(cls, error) from None

    def __post_init__(self) -> None:
        for cls in reversed(type(self).__mro__):  # a base's conditions hold without a word
            vars(cls).get("check", Options.check)(self)

    def check(self) -> None:
        """Refuse values that do not go together; those of its bases are refused, too."""

    def changed_options(self) -> dict[str, Any]:
        """The options that are not their defaults, in the order of declaration."""
        every = ((name, getattr(self, name)) for name in get_fields(type(self)))
        return {k: v for k, v in every if v != get_default(type(self), k)}

    def needs(self, name: str, *others: str) -> None:
        """Refuse an option that is given without one of the others."""
        if name in self.changed_options() and not self.changed_options().keys() & set(others):
            known = " or ".join(map(flag, others))
            raise UsageError(f"{flag(name)} is used only with {known}: give that, or leave it out")

    def excludes(self, name: str, *others: str) -> None:
        """Refuse an option that is given beside one of the others."""
        changed = self.changed_options().keys()
        if name in changed and (both := [one for one in others if one in changed]):
            also = flag(both[0])
            raise UsageError(f"{flag(name)} is not used with {also}: leave one of them out")

    def only_where(self, name: str, other: str, value: Any) -> None:
        """Refuse an option that is given where another one has not this value."""
        if name in self.changed_options() and (found := getattr(self, other)) != value:
            needed = f"{flag(other)} {value}; found {found}"
            raise UsageError(f"{flag(name)} is used only with {needed}: leave it out")

    def recipe_options(self, *but: str) -> dict[str, Any]:
        """The options by `key_of`, as files and recipes hold them: no inputs, outputs, `Absent`.

        ``but``: options in whose place the stage puts what follows from them.
        """
        sets = (get_option_set(type(self), one) for one in ("EXECUTION_ONLY", "SELECTS", "REFUSES"))
        left, found = {*but}.union(*sets), dict[str, Any]()
        for name, info in get_fields(type(self)).items():
            value = getattr(self, name)
            absent = Absent(value) in info.metadata
            is_option = not any(isinstance(m, (Reads, Writes, Flat)) for m in info.metadata)
            if is_option and name not in left and not absent:
                found[key_of(type(self), name)] = list(value) if isinstance(value, tuple) else value
        return found

    def to(self, cls: type[OptionsT], **more: Any) -> OptionsT:
        """Options of another class, with the values of the fields that both have."""
        shared = get_fields(cls).keys() & get_fields(type(self)).keys() - more.keys()
        return cls(**{**{name: getattr(self, name) for name in shared}, **more})

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@cache  # once: options are made again and again
def log_unused(name: str, other: str) -> None:
    """Say that an option is used only with another one."""
    log.info("%s is used only with %s: it changes nothing here", flag(name), flag(other))


def flag(name: str) -> str:
    """The name of an option on the command line: of ``as_json`` --json, of ``list_`` --list."""
    return "--" + name.removeprefix("as_").strip("_").replace("_", "-")


def get_fields(cls: type[Any]) -> dict[str, Any]:
    """pydantic's record of each field, in order."""
    found: dict[str, Any] = cls.__pydantic_fields__
    return found


def get_option_set(cls: type[Any], name: str) -> frozenset[str]:
    """One of the sets of a class, with those of its bases."""
    return frozenset().union(*(vars(one).get(name, ()) for one in cls.__mro__))


def make_options_for(whose: str, cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """The options of a head or a method by name; `UsageError` for one that it lacks."""
    if strangers := sorted(values.keys() - get_fields(cls).keys()):
        known = ", ".join(sorted(get_fields(cls)))
        instead = instead_of(strangers[0]) or f"it has {known}"
        raise UsageError(f"{whose} has no option {strangers[0]!r}; {instead}")
    return cls(**values)


def by_name(cls: type[Options], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a file by their names; a key of no option stays as it is."""
    names = {key_of(cls, name): name for name in get_fields(cls)}
    return {names.get(key, key): value for key, value in stored.items()}


def key_of(cls: type[Options], name: str) -> str:
    """What files and recipes call an option."""
    return str(get_word(get_fields(cls)[name], Stored) or name)


def get_word(info: Any, kind: type[HeldT]) -> HeldT | None:
    """What an annotation says by an object of this class."""
    return next((m for m in info.metadata if isinstance(m, kind)), None)


def positional(cls: Any) -> list[str]:
    """The fields that the shell takes without a name."""
    named, of = getattr(cls, "NAMED", ()), get_fields(cls)
    first = (f.name for f in fields(cls) if not f.kw_only and f.name not in named)
    return [name for name in first if get_word(of[name], Writes) is None]


@cache
def make_signature(cls: Any) -> Signature:
    """What a class is called with: its files, then its options by name."""
    of, found = get_fields(cls), list[Parameter]()
    for f in sorted(fields(cls), key=lambda f: bool(f.kw_only)):
        kind = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        default = Parameter.empty if of[f.name].is_required() else get_default(cls, f.name)
        found.append(Parameter(f.name, kind, default=default, annotation=of[f.name].annotation))
    return Signature(found)


def get_default(cls: type[Any], name: str) -> Any:
    """The default of an option; MISSING where it is required."""
    info = get_fields(cls)[name]
    return MISSING if info.is_required() else info.get_default(call_default_factory=True)


# ---------------------------------------------------------------- types, ranges, messages


def get_types(info: Any) -> list[Any]:
    """The types that a field allows, None left out."""
    hint = info.annotation
    many = args_of(hint) if origin_of(hint) in (Union, UnionType) else (hint,)
    return [one for one in many if one is not NoneType]


def _plain(kinds: list[Any], value: Any) -> Any:
    """A value as the type that a field has: a path for a text, a tuple for a list."""
    several = [args_of(one)[0] for one in kinds if origin_of(one) is tuple]
    if several and isinstance(value, (list, tuple)):
        return tuple(_plain(several, one) for one in value)
    if several and len(kinds) == 1 and isinstance(value, (str, Path)):
        return (_plain(several, value),)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)  # NumPy's
    if isinstance(value, str) and Path in kinds and value and "\0" not in value:
        return Path(value)
    return str(value) if isinstance(value, Path) and Path not in kinds and str in kinds else value


def _validation_message(cls: type[Any], error: ValidationError) -> UsageError:
    """What pydantic refuses first, with the option, its choices, range or type, and the value."""
    first = error.errors(include_url=False)[0]
    name, kind = str(first["loc"][0]), first["type"]
    info = get_fields(cls)[name]
    if kind == "missing":
        return UsageError(f"{flag(name)} is needed: {info.description}")
    is_known = "than" in kind or kind in ("value_error", "literal_error")
    why = f"is {describe_allowed(info)}" if is_known else first["msg"].removeprefix("Input ")
    return UsageError(f"{flag(name)} {why}; found {first['input']!r}")


def describe_allowed(info: Any) -> str:
    """The choices of a text, or the range of a number, in words; empty where there are none."""
    known, kind = get_word(info, Choices), get_types(info)[0]
    if known or origin_of(kind) is Literal:
        return ", ".join(known.known if known else args_of(kind))
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    every = ((name, getattr(m, name, None)) for name in words for m in info.metadata)
    limits = {name: value for name, value in every if value is not None}
    if limits.keys() == {"ge", "le"}:
        return f"{limits['ge']} to {_number(limits['le'])}"
    return ", ".join(f"{words[name]} {number}" for name, number in limits.items())


def _number(value: float) -> str:
    """The number; a large power of two, or one less, as that."""
    for less in (0, 1):
        if isinstance(value, int) and value >= 2**20 and (value + less).bit_count() == 1:
            return f"2^{(value + less).bit_length() - 1}{' − 1' * less}"
    return str(value)


def make_help(info: Any, default: str | None = None) -> str:
    """The description of a field, with its choices or range and its default.

    ``default``: what is said of it instead, as in a description that ends with '(default: 0)'.
    """
    about, said, unset = info.description.removesuffix(")").partition(" (default: ")
    value = None if info.is_required() else info.get_default(call_default_factory=True)
    if not (said or value is None or value is False or value in ((), {}, "")):
        unset = f"{value:g}" if isinstance(value, float) else str(value)
    new = (word for word in info.examples or () if word not in about)
    allowed = describe_allowed(info) or ", ".join(new)
    unset = (f"default: {unset}" if unset else "") if default is None else default
    beside = "; ".join(filter(None, [allowed, unset]))
    return f"{about if said else info.description}{f' ({beside})' if beside else ''}"


# ---------------------------------------------------------------- files that options name


Named = tuple[str, Path, bool]  # an option, a file that it names, whether the file is written


def files_in(cls: type[Any], values: Mapping[str, Any]) -> Iterator[Named]:
    """The files that options of a class name; ``values`` are theirs by name."""
    for name in values.keys() & get_fields(cls).keys():
        info = get_fields(cls)[name]
        said = name.upper() if name in positional(cls) else flag(name)
        inside, value = get_word(info, Holds), _plain(get_types(info), values[name])
        for one in value if isinstance(value, tuple) else (value,):
            is_path = inside is not None or isinstance(one, Path)
            text = inside.path(one) if inside is not None and isinstance(one, str) else str(one)
            if is_path and text not in ("", STREAM) and "\0" not in text:
                yield said, Path(text), get_word(info, Writes) is not None


def absolute(cls: type[Any], name: str, value: Any) -> Any:
    """The value of a field with absolute paths in it; a name where no file is stays as it is."""
    if isinstance(value, tuple):
        return tuple(absolute(cls, name, one) for one in value)
    if isinstance(value, Path):
        return value.absolute()
    info = get_fields(cls)[name]
    inside = get_word(info, Holds)
    if inside is None or value in (info.examples or ()):
        return value
    before, path, after = inside.parts(value)
    is_name = not path or (not inside and not Path(path).is_file())
    return value if is_name else f"{before}{Path(path).absolute()}{after}"
