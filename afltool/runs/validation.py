"""What can be known before any work begins: what cannot end well, and what may be kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..errors import InputError, OutputExistsError, UsageError
from ..files.features import check_alike
from ..files.hdf5 import read_header
from ..files.heads import head_from, load_head, new_head
from ..files.outputs import check_own, refuse_inside
from ..files.partitions import load_partition
from ..files.tables import read_columns
from ..heads import HEADS, make_head, options_class
from ..heads.base import Head
from ..heads.checks import with_options
from ..options.features import ExtractOptions
from ..stages.local_stats import check_participation
from .config import RunConfig, get_written_options, list_run_files
from .folder import RunFolder


def check_before(
    config: RunConfig, folder: RunFolder, *, here: bool = True, known: set[str] | None = None
) -> None:
    """Refuse what would fail later; no image is read and nothing is written.

    ``here``: images are extracted on this machine, so its device and data sets are looked at, too.
    ``known``: what runs that have it in common have checked before.
    """
    refuse_inside(folder.root, folder.WRITES, list_run_files(config), folder.AT_HOME)
    config.with_absolute_paths().to_toml()  # refuses a path that run.toml cannot name
    of_head = [config.own.head, config.own.full_gram, config.all_head_options(), config.local_stats]
    _first_use(known, of_head, lambda: _check_head(config))
    check_rows(config, folder, here=here, known=known)
    if folder.root.exists() and not folder.root.is_dir():
        raise InputError(f"{folder.root}: expected a folder, found a file; choose another path")


def check_rows(
    config: RunConfig, folder: RunFolder, *, here: bool, known: set[str] | None = None
) -> None:
    """Refuse features, partitions and extractions that fail; see `check_before`."""
    own = config.own
    given = [own.train_features, own.test_features, own.partition, config.partition]
    _first_use(known, given, lambda: _check_given_files(config))
    for split in ("train", "test"):
        if config.extract is not None and not folder.features(split).exists():
            from ..extraction.request import check_extraction  # and all that reads images

            options = ExtractOptions(**{**vars(config.extract), "split": split})
            _first_use(known, options, partial(check_extraction, options, here=here))


def _first_use(known: set[str] | None, what: object, check: Callable[[], None]) -> None:
    if known is None or repr(what) not in known:
        check()
    if known is not None:
        known.add(repr(what))


def is_linked(given: Path, place: Path, kind: str, overwrite: bool = False) -> bool:
    """Whether ``place`` is the given file, by its digest; another that would be lost is refused."""
    digest: str = read_header(given, kind)["digest"]
    have = read_header(place, kind)["digest"] if place.exists() else None
    if have not in (None, digest) and place.stat().st_nlink == 1 and not overwrite:
        raise OutputExistsError(
            f"{place} exists, and is not {given}: digest {have}, expected {digest}; move it away, "
            "choose another -o, or use --overwrite"
        )
    return bool(have == digest)


def _check_head(config: RunConfig) -> None:
    """Refuse a head that cannot be begun, or not by the run's clients, and --full-gram of it."""
    check_participation(check_head(config), config.local_stats)
    two = config.first_head is None and options_class(config.own.head).CHEAPER
    every = two and config.local_stats.participation == 1
    if config.own.full_gram and not (every and not config.head_options.get("incremental")):
        raise UsageError(
            "--full-gram is for --head deepafl, made here, without --incremental, where all "
            "clients take part: leave it out"
        )


def check_own_files(config: RunConfig, folder: RunFolder, overwrite: bool = False) -> None:
    """Refuse results where no run has begun, which would be somebody else's, and another input."""
    f = RunFolder
    results = (f.METRICS, f.CONFUSION, f.ROUNDS, f.SUMMARY, f.FINAL)
    check_own((folder / name for name in results), overwrite or folder.options.exists())
    own = config.own
    for given, path, kind in (
        (own.train_features, folder.features("train"), "features"),
        (own.test_features, folder.features("test"), "features"),
        (own.partition, folder.clients, "partition"),
    ):
        if given is not None:
            is_linked(given, path, kind, overwrite)
    place = folder.options
    if overwrite or not place.exists():
        return
    now = config.with_absolute_paths().to_toml()
    if get_written_options(place) not in (now, place.read_text("utf-8", "replace")):
        raise OutputExistsError(
            f"{place} describes another run, with comments of its owner, which would be lost; "
            "choose another -o, or move it away"
        )


def check_head(config: RunConfig) -> Head:
    """The first head of a run, made of its options or read; one that is solved is refused."""
    given, options = config.first_head, config.all_head_options()
    if given is None:
        if "seed" in options and not hasattr(options_class(config.own.head), "seed"):
            raise UsageError(f"the head {config.own.head!r} draws nothing: leave --head-seed out")
        head = make_head(config.own.head, options)
    else:
        if given.suffix != ".h5" and not given.exists():
            listed = f"the heads are {', '.join(HEADS)}, or give a head file"
            raise UsageError(f"there is no head {config.own.head!r}; {listed}")
        head = with_options(head_from(given)[0], **options)
    if head.phase() is None:
        raise UsageError(f"the head {given} is solved: there is nothing left to gather")
    return head


def _check_given_files(config: RunConfig) -> None:
    """Features fit each other, a partition is one, and a table can be read and has its columns."""
    train, test = config.own.train_features, config.own.test_features
    if train is not None and test is not None:
        check_alike(train, test)
    if config.own.partition is not None:
        read_header(config.own.partition, "partition")
    elif config.partition is not None and config.partition.table is not None:
        read_columns(config.partition.table, (config.partition.column or "client",))


def client_count(config: RunConfig) -> int:
    if config.own.partition is not None:
        return len(load_partition(config.own.partition).names)
    dealt = config.partition
    assert dealt is not None  # where no partition is given, one is made
    if dealt.table is None:
        assert dealt.clients is not None  # every scheme without a table needs them
        return dealt.clients
    name = dealt.column or "client"
    return max(len(set(read_columns(dealt.table, (name,))[name])), dealt.clients or 1)


def holds_clients_out(config: RunConfig) -> bool:
    if config.own.partition is not None:
        return bool(read_header(config.own.partition, "partition")["held_out"])
    return config.partition is not None and config.partition.held_out > 0


def serves(config: RunConfig, start: Path) -> bool:
    """Whether a first head, perhaps of an older version, differs only in what `solve` is told."""
    if not start.exists():
        return False
    kept, header = load_head(start)
    if kept.phase() is None or header["name"] != config.own.head:
        return False
    options = config.all_head_options()
    if getattr(kept.options, "compute", None) == "float32":  # the default of 0.3 and before
        options.setdefault("compute", "float32")
    made = new_head(config.own.head, options)
    moved = with_options(kept, **{k: getattr(made.options, k) for k in kept.options.changeable()})
    return moved.options.as_dict() == made.options.as_dict() and moved.digest() == made.digest()
