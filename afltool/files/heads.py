"""Writes and reads head files; makes heads from a name with options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ..errors import AflError, CorruptFileError, MismatchError, UsageError
from ..heads import HEADS, make_head, options_class, read_head
from ..heads.base import LAST, Classifier, Head, Stored
from ..options.base import flag
from ..progress import log
from ..values.arrays import Array, freeze
from ..values.names import Phase
from ..values.statistics import Context
from ..values.text import difference
from . import hdf5, schema
from .features import Features
from .schema import provenance

NOTHING_FOUND: Mapping[str, Any] = {}


class HeadFile(NamedTuple):
    """A head, or what has one of its two roles alone, and the header of its file."""

    head: Head
    header: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.head.name!r}"

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.head.state_dict().values())

    @property
    def report(self) -> dict[str, Any]:
        """Figures of the head, such as its rank, and as ``phases`` its rounds."""
        return dict(self.header["report"])

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Its rounds, as `Found.round` has them."""
        return list(self.report.get("phases", []))

    def rounds_with(self, more: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Its rounds, single figures only; ``more`` adds figures by phase."""
        kept = [
            {k: v for k, v in one.items() if not isinstance(v, (list, dict))} for one in self.rounds
        ]
        return [{**one, **more.get(one["phase"], {})} for one in kept]

    def phase_of(self, name: Phase) -> str:
        """The phase of a round that the head names; of `LAST` what the list of rounds says."""
        return str(self.rounds[-1]["phase"]) if name == LAST and self.rounds else name


def save_head(
    path: Path,
    head: Stored,
    made_by: Mapping[str, Any],
    context: Context | None = None,
    report: Mapping[str, Any] = NOTHING_FOUND,
    **more: Any,
) -> hdf5.Header:
    """Write a head; ``context`` is that of the total it was solved from, if any.

    ``report``: figures of the head and, as ``phases``, its rounds; see `Found.report`. ``more``: of
    the provenance. Gives the header.
    """
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
    named = {f"{schema.ARRAYS}/{name}": a for name, a in head.state_dict().items()}
    return hdf5.write_file(path, "head", header, named)


def write_head(path: Path, made_by: Mapping[str, Any], head: Stored, **how: Any) -> HeadFile:
    """`save_head`; gives the head as a reader has it, with the errors that he would raise."""
    header = save_head(path, head, made_by, **how)
    begun = type(head).begin(head.options)
    return HeadFile(_restore_head(path, begun, header, head.state_dict()), header)


def _begin_head(path: Path, header: Mapping[str, Any]) -> Stored:
    """The head of a header before its first phase."""
    name, options = header["name"], header["options"]
    try:
        if header["phase"] is None:  # it is its arrays, whatever has gone of what they were made by
            options = {k: v for k, v in options.items() if k not in options_class(name).GONE}
        return read_head(name, options)
    except UsageError as error:
        raise CorruptFileError(f"{path} is of another version, or damaged: {error}") from None


def _restore_head(
    path: Path, begun: Stored, header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Head:
    """The head of a file from one before its first phase; nobody can write into its arrays."""
    phase, dim, classes = header["phase"], header["dim"], header["classes"] or ()
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise hdf5.damage_message(
                path, f"the array {name!r} of its head has NaN or infinite entries"
            )
    if phase is None and dim is None:
        raise hdf5.damage_message(
            path, "a solved head has a number of features; its header has none"
        )
    named = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    try:
        head = begun.restore(None if phase is None else Phase(phase), named)
        head = head if dim is None else head.bind(dim, len(classes))
    except AflError as error:
        raise hdf5.damage_message(path, str(error)) from None
    if strange := sorted(named.keys() ^ head.state_dict().keys()):
        has = "holds" if strange[0] in named else "lacks"
        raise hdf5.damage_message(
            path, f"a {head.name} head of phase {phase!r} {has} {strange[0]!r}"
        )
    freeze(head.state_dict().values())
    return cast(Head, head)


def load_head(path: Path) -> HeadFile:
    """Read a head and its header; its digest is checked."""
    header, arrays = hdf5.read_file(path, "head")
    with hdf5.damage_as_error(path):
        head = _restore_head(path, _begin_head(path, header), header, hdf5.additive(arrays))
        hdf5.check_digest(path, header, head.digest())
    return HeadFile(head, header)


def load_solved_head(
    path: Path, role: type[Stored] = Classifier, wanted: str = "a head that scores rows"
) -> HeadFile:
    """`load_head` of one that is solved; `UsageError` where it is not, or has another role."""
    loaded = load_head(path)
    if not isinstance(loaded.head, role):
        raise UsageError(f"{path} is a {loaded.head.name} file; expected {wanted}")
    if loaded.head.phase() is not None:
        raise not_solved(loaded.head, path)
    return loaded


def not_solved(head: Stored, path: str | Path) -> UsageError:
    """What is said of a head that cannot score rows yet."""
    return UsageError(f"the head {path} is not solved yet: its next phase is {head.phase()!r}")


def check_fits(head: str | Path | HeadFile, header: Mapping[str, Any], rows: Features) -> None:
    """`check_bound` of features; their classes are those of labels, where there are any."""
    named = ("space", "classes") if rows.given_labels is not None else ("space",)
    check_bound(head, header, rows.path, {key: rows.header[key] for key in named})


def check_bound(
    head: str | Path | HeadFile,
    header: Mapping[str, Any],
    path: str | Path,
    features: Mapping[str, Any],
) -> None:
    """Refuse with `MismatchError` a file of other ``features`` (space, classes) than the head's.

    A head that was made of no features, and is bound to none, fits all, one whose space has no
    ``dtype`` any number format.
    """
    ours, theirs = ({k: one[k] for k in features if header[k]} for one in (header, features))
    if header["space"] and "dtype" not in header["space"]:
        alike = {key: header["space"].get(key) for key in ("dtype", "fraction_bits")}
        ours, theirs = ({**one, "space": {**one["space"], **alike}} for one in (ours, theirs))
    if where := difference(ours, theirs, f"in {head}", f"in {path}"):
        advice = "extract its rows with the head's backbone, options and --classes FILE"
        raise MismatchError(f"{path} does not fit the head {head}: {where}; {advice}")


def get_row_facts(path: Path) -> Context:
    """What a feature file's rows are: its space and its classes."""
    header = hdf5.read_header(path, "features")
    return Context(header["space"], tuple(header["classes"]))


def new_head(name: str, options: Mapping[str, Any] | None = None) -> Head:
    """A head before its first phase; what it does not use of the options is told."""
    log_idle_options(made := make_head(name, options), options or {})
    return made


def log_idle_options(head: Head, given: Mapping[str, Any]) -> None:
    """Say which of the ``given`` options the head does not use, and what would use them."""
    for option, what in head.options.idle():
        if option in given:
            log.info("%s is used only with %s, and there is none here", flag(option), what)


def head_from(
    spec: str | Path | HeadFile,
    options: Mapping[str, Any] | None = None,
    load: Callable[[Path], HeadFile] = load_head,
) -> tuple[Head, dict[str, Any] | None]:
    """A head and its header from a file, or one from a name with its options (None)."""
    if isinstance(spec, HeadFile):
        return spec
    path = Path(spec)
    if str(spec) in HEADS or (path.suffix != ".h5" and not path.exists()):
        return make_head(str(spec), options), None
    if options:
        raise UsageError(
            f"{path} is a head file and holds its options: leave {flag(min(options))} out"
        )
    return load(path)
