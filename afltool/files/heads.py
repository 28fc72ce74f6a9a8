"""Writes and reads head files; makes heads from a name with options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import (
    AflError,
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    UsageError,
)
from ..heads import OPTIONS, head_class, make_head, make_options, options_class
from ..heads.base import LAST, Head, Source
from ..heads.options import HeadOptions
from ..options.base import flag
from ..progress import log
from ..values.arrays import Array, Once, canonical_json, freeze
from ..values.names import Phase
from ..values.statistics import Context
from ..values.text import difference
from . import hdf5, schema
from .arrays import damage_as_error
from .features import Features, open_features
from .schema import provenance

NOTHING_FOUND: Mapping[str, Any] = {}


class HeadFile(NamedTuple):
    """A head and the header of its file, which has the rounds that made it."""

    head: Head
    header: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.head.name!r}"

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.head.arrays().values())

    @property
    def report(self) -> dict[str, Any]:
        """Figures of the head, such as its rank, and as ``phases`` its rounds."""
        return dict(self.header["report"])

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Its rounds, as `Round.entry` has them."""
        return list(self.report.get("phases", []))

    def phase_of(self, name: Phase) -> str:
        """The phase of a round that the head names; of `LAST` what the list of rounds says."""
        return str(self.rounds[-1]["phase"]) if name == LAST and self.rounds else name


def save_head(
    path: Path,
    head: Head,
    made_by: Mapping[str, Any],
    context: Context | None,
    report: Mapping[str, Any] = NOTHING_FOUND,
    **more: Any,
) -> Path:
    """Write a head; ``context`` is that of the total it was solved from, if any.

    ``report``: figures of the head and, as ``phases``, its rounds; see `Round.report`.
    """
    _write(path, head, made_by, context, report, more)
    return path


def write_head(
    path: Path,
    made_by: Mapping[str, Any],
    head: Head,
    context: Context | None,
    report: Mapping[str, Any] = NOTHING_FOUND,
    **more: Any,
) -> HeadFile | None:
    """`save_head`; returns what a reader of the file has, None where that would refuse it.

    Of the arrays of earlier rounds, which nobody can write into, the checksums are known.
    """
    kept = _kept(head, context)
    header = _write(path, kept or head, made_by, context, report, more)
    return None if kept is None else HeadFile(kept, json.loads(canonical_json(header)))


def _write(
    path: Path,
    head: Head,
    made_by: Mapping[str, Any],
    context: Context | None,
    report: Mapping[str, Any],
    more: Mapping[str, Any],
) -> hdf5.Header:
    header = {
        "digest": head.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(**more),
        "name": head.name,
        "options": head.options.as_dict(),
        "phase": head.phase(),
        "dim": head.dim,
        "space": dict(context.space) if context else None,
        "classes": list(context.classes) if context else None,
        "report": dict(report),
    }
    named = {f"{schema.ARRAYS}/{k}": a for k, a in head.arrays().items()}
    hdf5.write_file(path, "head", header, named)
    return {"kind": "head", **header}


def _kept(head: Head, context: Context | None) -> Head | None:
    """The head as a reader of its file would have it; None where that would refuse it."""
    named = head.arrays()
    if not all(map(_finite, named.values())):
        return None
    begun = type(head).begin(head.options)
    return _restored(begun, head.phase(), head.dim, context.classes if context else (), named)


def _of_file(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Head:
    name, options, phase = header["name"], header["options"], header["phase"]
    phase = None if phase is None else Phase(phase)
    if phase is None:  # a solved head is its arrays, whatever has gone of what they were made with
        options = {k: v for k, v in options.items() if k not in options_class(name).GONE}
    begun = make_head(name, options)
    return _restored(begun, phase, header["dim"], header["classes"] or (), arrays)


def _restored(
    begun: Head,
    phase: Phase | None,
    dim: int | None,
    classes: Sequence[str],
    arrays: Mapping[str, Array],
) -> Head:
    """The head of a file from one before its first phase; nobody can write into its arrays."""
    if phase is None and dim is None:
        raise InvalidDataError("a solved head has a number of features; its header has none")
    head = begun.restore(phase, {name: np.ascontiguousarray(a) for name, a in arrays.items()})
    head = head if dim is None else head.bind(dim, len(classes))
    freeze(head.arrays().values())
    return head


def load_head(path: Path) -> HeadFile:
    """Read a head and its header; its digest is checked."""
    header, arrays = hdf5.read_file(path, "head")
    with damage_as_error(path):
        prefix = schema.ARRAYS + "/"
        named = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        try:
            head = _of_file(header, named)
        except AflError as error:
            what = (
                "is of another version, or damaged"
                if isinstance(error, UsageError)
                else "is damaged"
            )
            raise CorruptFileError(f"{path} {what}: {error}") from None
        for name, array in named.items():
            check_numbers(path, name, array)
        strange = sorted(named.keys() ^ head.arrays().keys())
        if strange:
            raise CorruptFileError(
                f"{path} is damaged: a {head.name} head of phase {head.phase()!r} does not hold "
                f"{strange[0]!r}"
                if strange[0] in named
                else f"{path} is damaged: the array {strange[0]!r} of its head is absent"
            )
        hdf5.check_digest(path, header, head.digest())
    return HeadFile(head, header)


def load_solved_head(path: Path) -> HeadFile:
    """`load_head` of one that scores rows; `UsageError` where it is not solved yet."""
    loaded = load_head(path)
    if loaded.head.phase() is not None:
        raise not_solved(loaded.head, path)
    return loaded


def not_solved(head: Head, path: str | Path) -> UsageError:
    """What is said of a head that cannot score rows yet."""
    return UsageError(
        f"the head {path} is not solved yet: its next phase is {head.phase()!r} (local-stats)"
    )


def check_fits(head: str | Path | HeadFile, header: Mapping[str, Any], rows: Features) -> None:
    """Refuse with `MismatchError` features of another space, or other classes, than the head's.

    A head that was made of no features, and is bound to none, fits all, one whose space has no
    ``dtype`` any number format. Classes are those of labels, where there are any.
    """
    named = ("space", "classes") if rows.given_labels is not None else ("space",)
    check_bound(head, header, rows.path, {key: rows.header[key] for key in named})


def check_bound(
    head: str | Path | HeadFile,
    header: Mapping[str, Any],
    path: str | Path,
    features: Mapping[str, Any],
) -> None:
    """`check_fits` of a file whose header or context says ``found`` of its rows."""
    known = [key for key in features if header[key]]
    ours, theirs = ({key: one[key] for key in known} for one in (header, features))
    if header["space"] and "dtype" not in header["space"]:
        alike = {key: header["space"].get(key) for key in ("dtype", "fraction_bits")}
        ours, theirs = ({**one, "space": {**one["space"], **alike}} for one in (ours, theirs))
    if where := difference(ours, theirs, f"in {head}", f"in {path}"):
        raise MismatchError(
            f"{path} does not fit the head {head}: {where}; extract its rows with the backbone, "
            "options and classes (--classes FILE) of the head"
        )


def check_numbers(path: Path, name: str, array: Array) -> None:
    """Refuse an array of a head that is not of finite numbers."""
    if not _finite(array):
        what = "is not of numbers"
        if array.dtype.kind in "f":
            what = f"has {int((~np.isfinite(array)).sum())} entries that are NaN or infinite"
        raise CorruptFileError(
            f"{path} is damaged: the array {name!r} of its head {what}; solve it again, and look "
            "at the total that it was solved from"
        )


@Once
def _finite(array: Array) -> bool:
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all())


def rows_of(path: Path) -> Context:
    """What a feature file's rows are: its space and its classes."""
    header = hdf5.read_header(path, "features")
    return Context(header["space"], tuple(header["classes"]))


def new_head(
    name: str,
    options: Mapping[str, Any] | None = None,
    opening: Callable[[Path], Features] | None = None,
) -> tuple[Head, Mapping[str, Any] | None]:
    """A head before its first phase; files that its options name are read into it.

    Also the feature space that it is bound to by such a file, if any. ``opening``: who has them
    open already.
    """
    chosen, space = make_options(name, options), None
    tell_idle(chosen, options or {})
    with ExitStack() as files:

        def opened(path: Path) -> Features:
            return files.enter_context(open_features(path, labelled=False))

        sources = {}
        for option in chosen.files():
            path = Path(str(getattr(chosen, option)))
            if not path.exists():
                raise InputError(
                    f"there is no file {path}: `afltool head {name} -h` has what --{option} takes"
                )
            sources[option], space = _source(path, opening or opened)
        return head_class(name).begin(chosen, sources), space


def tell_idle(options: HeadOptions, given: Mapping[str, Any]) -> None:
    """Say which of the ``given`` options the head does not use, and what would use them."""
    for option, what in options.idle():
        if option in given:
            log.info("%s is used only with %s, and there is none here", flag(option), what)


def _source(
    path: Path, opening: Callable[[Path], Features]
) -> tuple[Source, Mapping[str, Any] | None]:
    """What a file that an option names holds, and its feature space."""
    if hdf5.read_header(path)["kind"] == "head":
        loaded, header = load_head(path)
        return Source("head", header["digest"], (), loaded.arrays()), header["space"]
    rows = opening(path)
    source = Source("features", rows.header["digest"], (X for _, X in rows.blocks()))
    return source, rows.header["space"]


def head_from(
    spec: str | Path | HeadFile,
    options: Mapping[str, Any] | None = None,
    load: Callable[[Path], HeadFile] = load_head,
) -> tuple[Head, dict[str, Any] | None]:
    """A head and its header from a file, or one from a name with its options (None)."""
    if isinstance(spec, HeadFile):
        return spec
    path = Path(spec)
    if str(spec) in OPTIONS or (path.suffix != ".h5" and not path.exists()):
        head = make_head(str(spec), options)
        if head.options.files():
            raise UsageError(
                f"--{head.options.files()[0]} FILE ends up in the head: write it first (afltool "
                f"head {spec} … -o head0.h5) and give --head head0.h5 to everybody"
            )
        return head, None
    if options:
        raise UsageError(
            f"{path} is a head file and holds its options: --{min(options).replace('_', '-')} "
            "cannot be given beside it"
        )
    return load(path)
