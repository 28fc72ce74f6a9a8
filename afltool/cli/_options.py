"""Options of commands: made from option classes, where everything about them is declared.

A command is a function that takes its files by Typer's own declarations, and its options as an
object of their class. Where it is a dict instead, it holds only the options that the user gave::

    def solve(total: …, out: Out, options: SolveOptions, head_options: dict[str, Any]) -> None: ...

    add(app, "solve", solve, head_options=partial(of_heads, at_solve=True))

Below: what commands share besides the options of stages: outputs, their display, passing on.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import Field, fields
from inspect import Parameter, Signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from ..doors import located
from ..heads import OPTIONS
from ..options import (
    ABSENT,
    Only,
    OnlyWith,
    Options,
    flag,
    help_of,
    input_type,
    kinds_of,
    made,
    refuse_unused_words,
)
from ..options.shared import Files, Given, of_field, of_parameter, refuse_shared
from ._console import OF_HEADS, RARE, command, is_quiet
from ._console import print_json as print_json
from ._console import say as say
from .app import add_later

#: Headings of the options of `run` in its help, by stage.
PANELS = {
    "extract": "Images and backbone",
    "partition": "Clients",
    "own": "Run",
    "here": "Run",
    "local_stats": "Statistics",
    "aggregate": "Statistics",
    "solve": "Solving",
    "evaluate": "Evaluation",
}
#: Types that the shell converts to. If a field allows several, the first one counts; others are
#: text.
_TYPES = (bool, int, float, Path)
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def starting_with(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What the shell offers for a value: those of ``words`` that begin so."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def parameters(
    cls: Any,
    panel: str | None = None,
    *,
    skip: Iterable[str] = (),
    only: Callable[[Field[Any]], bool] = lambda f: True,
    rename: Mapping[str, str] | None = None,
    rare: bool = False,
    text: Callable[[Field[Any]], str] = help_of,
) -> list[inspect.Parameter]:
    """A keyword parameter for each field of an options class; None stands for "not given".

    Args:
        panel: their heading in the help.
        skip, only: which fields are left out, or taken.
        rename: other names, where two classes have a field of one name.
        rare: options that are not common are shown by ``--help-all`` only.
        text: what the help says of a field.
    """
    names, added = rename or {}, []
    for f in _own_first(cls):
        if "help" in f.metadata and f.name not in set(skip) and only(f):
            name = names.get(f.name, f.name)
            hidden = rare and not f.metadata["common"]
            heading = f"{panel or 'Options'}{RARE}" if hidden else panel
            described = typer.Option(
                flag(name), help=text(f), rich_help_panel=heading, autocompletion=_completion(f)
            )
            kind: Any = Annotated[_from_shell(f) | None, described, of_field(f)]
            added += [inspect.Parameter(name, KEYWORD_ONLY, default=None, annotation=kind)]
    return added


def _own_first(cls: Any) -> list[Field[Any]]:
    """The fields of a class, those of its base classes last."""
    own = vars(cls).get("__annotations__", {})
    return sorted(fields(cls), key=lambda f: f.name not in own)


def _completion(f: Field[Any]) -> Callable[[str], list[str]] | None:
    """The values of a field that the shell completes; none unless they are words."""
    words = f.metadata.get("choices") or f.metadata.get("examples")
    return starting_with(words) if words else None


def _from_shell(f: Field[Any]) -> Any:
    """The type that the shell gives: a number or 'auto' is text, several values are a list."""
    kinds = kinds_of(input_type(f))
    if kinds[0].startswith("tuple"):
        return {"Path": list[Path], "int": list[int]}.get(kinds[0][6:-6], list[str])
    return str if "str" in kinds else next((t for t in _TYPES if t.__name__ in kinds), str)


def add(app: typer.Typer, name: str, function: Callable[..., Any], **groups: Any) -> None:
    """Make ``function`` a command; a group is an option class, parameters, or what makes them.

    What makes them gets names of heads as ``heads``, if it takes this.

    A parameter of the function whose type is an option class is a group, too.
    """

    def make(heads: Iterable[str] = OPTIONS) -> Callable[..., Any]:
        own = inspect.signature(function, eval_str=True)
        every = {**_classes(own), **groups}
        ordered = {name: every[name] for name in own.parameters if name in every}
        by_group = {name: _parameters(group, heads) for name, group in ordered.items()}
        return with_options(function, **by_group)

    add_later(app, name, function.__doc__, make)


def _parameters(group: Any, heads: Iterable[str]) -> list[inspect.Parameter]:
    if isinstance(group, type):
        return parameters(group)
    if not callable(group):
        return [*group]
    depends = "heads" in inspect.signature(group).parameters
    return [*(group(heads=heads) if depends else group())]


def _classes(own: inspect.Signature) -> dict[str, type[Options]]:
    """The parameters of a command that are objects of options, with their classes."""
    kinds = {name: p.annotation for name, p in own.parameters.items()}
    return {k: c for k, c in kinds.items() if isinstance(c, type) and issubclass(c, Options)}


def with_options(
    function: Callable[..., Any], **groups: Iterable[inspect.Parameter]
) -> Callable[..., Any]:
    """``function(…, NAME)`` as a command with each option of the group NAME as a parameter.

    NAME is an object of an option class, or a dict of the options that were given, by the names of
    the parameters. Two groups may not have an option of one name; the function's own parameters
    (its files) may. An output that is an input is refused before the function is called.
    """
    own = inspect.signature(function, eval_str=True)
    classes, listed = (
        _classes(own),
        {group: [*group_options] for group, group_options in groups.items()},
    )
    kept = [p for p in own.parameters.values() if p.name not in groups]
    first = [p for p in kept if p.default is p.empty]
    taken = {p.name for p in kept}
    inner = {
        f"{p.name}_" if p.name in taken else p.name: (group, p)
        for group, group_options in listed.items()
        for p in group_options
    }
    added = [p.replace(name=name) for name, (_, p) in inner.items()]
    if len(added) < sum(map(len, listed.values())):
        raise TypeError(f"{function.__name__}: two groups have an option of one name")

    def wrapper(**values: Any) -> None:
        with command():
            refuse_shared(_files(every, values))
            refuse_unused_words(_given(every, values), only_with(every))
            chosen: dict[str, Any] = {group: {} for group in groups}
            for name, (group, p) in inner.items():
                value = values.pop(name)
                if value is not None and value != []:
                    chosen[group][p.name] = tuple(value) if isinstance(value, list) else value
            chosen |= {group: made(cls, chosen[group]) for group, cls in classes.items()}
            function(**values, **chosen)

    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    last = [p for p in kept if p.default is not p.empty]
    every = [*(p.replace(kind=KEYWORD_ONLY) for p in first), *added]
    every += [p.replace(kind=KEYWORD_ONLY) for p in last]
    # To mypy a function has no such attribute; Typer reads it.
    wrapper.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in every}
    return wrapper


def _files(every: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> Iterator[Given]:
    """What the values of a command's parameters say of files, by the names that people see."""
    for p in every:
        shared = of_parameter(p)
        if shared is not None and values.get(p.name) is not None:
            yield _seen(p), shared, values[p.name]


def used_with(
    given: Iterable[inspect.Parameter], only: Only, but: Iterable[str] = ()
) -> list[inspect.Parameter]:
    """The parameters, used only with other options of the command; ``but``: names of the others."""
    kept = set(but)
    return [
        p if p.name in kept else p.replace(annotation=Annotated[p.annotation, OnlyWith(only)])
        for p in given
    ]


def only_with(every: Iterable[inspect.Parameter]) -> dict[str, Only]:
    """What options of a command are used with beside what their classes say, by names as typed."""
    return {
        _typed(p): one.only
        for p in every
        for one in get_args(p.annotation)
        if isinstance(one, OnlyWith)
    }


def _given(every: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not what stands for "not given", by names as typed."""
    pairs = ((p, values.get(p.name)) for p in every)
    return {
        _typed(p): value
        for p, value in pairs
        if value is not None and value is not False and value != [] and value != p.default
    }


def _typed(p: inspect.Parameter) -> str:
    return _seen(p).removeprefix("--").replace("-", "_")


def _seen(p: inspect.Parameter) -> str:
    """What the help calls a parameter: --option or ARGUMENT."""
    typed = [one for one in get_args(p.annotation) if hasattr(one, "param_decls")]
    # Typer takes the first name of an option for its default.
    names = [name for one in typed for name in (one.default, *(one.param_decls or ()))]
    flags = [name for name in names if isinstance(name, str) and name.startswith("--")]
    metavars = [one.metavar for one in typed if one.metavar]
    return next(iter([*flags, *metavars]), p.name.upper())


def of_heads(
    heads: Iterable[str] = OPTIONS, skip: Iterable[str] = (), at_solve: bool = False
) -> list[inspect.Parameter]:
    """One parameter for each option that some of these heads have.

    The help shows them head by head; those that are not common are shown by ``--help-all`` only.

    ``at_solve``: only those that `solve` may still change.
    """
    by_name: dict[str, inspect.Parameter] = {}
    for name in heads:
        for p in parameters(
            OPTIONS[name],
            OF_HEADS,
            skip=skip,
            only=lambda f: not at_solve or bool(f.metadata["at_solve"]),
            rare=True,
            text=lambda f: f.metadata["of_any"] or help_of(f),
        ):
            by_name.setdefault(p.name, p)  # of one name all have one type, and one ``of_any``
    return list(by_name.values())


def of_run(heads: Iterable[str] = OPTIONS, here: bool = True) -> list[inspect.Parameter]:
    """Every option of `run`: those of its stages and of these heads.

    ``here``: also those of this machine, which jobs on a cluster do not have.
    """
    from ..plans.config import DEFAULTS, HERE, PARTS  # and the options of every stage

    of_config = [
        p
        for part, (cls, names) in PARTS.items()
        if here or part != HERE
        for p in parameters(
            cls,
            PANELS.get(part, part.capitalize()),
            rename=names,
            only=lambda f: bool(f.metadata["in_run"]),
            rare=True,
            text=lambda f: help_of(f, DEFAULTS.get(f.name)),
        )
    ]
    return [*of_config, *of_heads(heads, {"seed"})]


Out = Annotated[Path, typer.Option("--out", "-o", help="where the result goes")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace an existing output")]
Picture = Annotated[Path, typer.Option("--out", "-o", help="a .png, .svg or .pdf file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a path or a table")]
JsonOfAll = Annotated[Json, OnlyWith({"field": ABSENT})]
FieldName = Annotated[
    str | None,
    typer.Option("--field", help="print only this field, such as digest or report.ridge"),
]
Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        help="also log it to MLflow: mlflow:URI, such as mlflow:sqlite:///runs.db",
        rich_help_panel=f"Run{RARE}",
    ),
]
HeadSpec = Annotated[
    str,
    typer.Option(
        "--head",
        help="a head file, or a head's name with its options",
        autocompletion=starting_with(OPTIONS),
    ),
    Files(),
]


def show(made: Path | Sequence[Path], as_json: bool) -> None:
    """The result of a stage, a file or several: a path a line, or what is in them as JSON."""
    if not as_json:
        for path in [made] if isinstance(made, Path) else made:
            say(path)
        return
    from ..stages.inspect import info

    if isinstance(made, Path) and not made.is_dir():
        print_json(info(made))
    else:
        paths = sorted(made.glob("*.h5")) if isinstance(made, Path) else made
        print_json([info(path) for path in paths])


def passing(
    app: typer.Typer,
    name: str,
    files: Mapping[str, Any],
    says: str | None,
    options: type[Options] = Options,
    *,
    stage: str | Callable[..., Any] = "",
    more: Mapping[str, Any] | None = None,
    first: tuple[str, ...] = (),
    out: Any = Out,
    head_options: Any = None,
    writes_json: bool = True,
    tells: str = "",
) -> None:
    """Add a command that passes its files and options on to a stage, and shows what this makes.

    ``files``: what each argument is, a path, or a type and what it is; ``stage``: a function, or
    MODULE:FUNCTION below `afltool.stages`, unless both have the command's name, or below `afltool`;
    ``first``: what it takes before the files; ``more``, ``out``: what it takes by name; ``tells``:
    MODULE:FUNCTION below `afltool.show`, which tells people more.
    """

    arguments = {k: _argument(v) for k, v in files.items()} | {**(more or {}), "out": out}
    arguments |= {"options": options, "head_options": head_options and Any}
    arguments |= {"overwrite": Overwrite, "as_json": writes_json and Json}

    def run(as_json: bool = False, **given: Any) -> None:
        place = stage or f"{name}:{name}".replace("-", "_")
        if isinstance(place, str):
            place = located(f"..{place if '.' in place else f'stages.{place}'}", __package__)
        made = place(*first, *(given.pop(k) for k in files), **given)
        if tells and not as_json:
            located(f"..show.{tells}", __package__)(made)
        show(made, as_json)

    function: Any = run  # to mypy a function has no signature to be set
    function.__name__, function.__doc__ = name, says
    function.__signature__ = Signature(
        [_parameter(k, kind) for k, kind in arguments.items() if kind and kind is not Options]
    )
    add(app, name, function, **({"head_options": head_options} if head_options else {}))


def _parameter(name: str, kind: Any) -> Parameter:
    own, *_ = get_args(kind) or (kind,)
    absent = None if NoneType in get_args(own) else Parameter.empty
    default = False if own is bool else absent
    return Parameter(name, KEYWORD_ONLY, default=default, annotation=kind)


def _argument(kind: Any) -> Any:
    kind, about = kind if isinstance(kind, tuple) else (Path, kind)
    return Annotated[kind, typer.Argument(help=about)]


def tracking(where: str | None) -> AbstractContextManager[None]:
    """In this block runs, studies and baselines are logged; what logs is loaded only for that."""
    if where is None:
        return nullcontext()
    from ..plans.tracking import tracked

    return tracked(where)


def show_folder(
    folder: Path, summary: str, as_json: bool, print_summary: Callable[[dict[str, Any]], None]
) -> None:
    """The result of a command that fills a folder, and on stderr what its summary says."""
    facts = json.loads((folder / summary).read_text())
    if as_json:
        print_json({"path": str(folder), **facts})
        return
    if not is_quiet():
        print_summary(facts)
    say(folder)


def show_found(
    facts: dict[str, Any],
    field_name: str | None,
    as_json: bool,
    source: Path,
    print_it: Callable[[dict[str, Any]], None],
) -> None:
    """What a command found: one field for a script (a text without quotes), JSON, or a table."""
    if field_name is None:
        print_json(facts) if as_json else print_it(facts)
        return
    from ..stages.inspect import field

    value = field(facts, field_name, source)
    say(value) if isinstance(value, str) else print_json(value, indent=None)
