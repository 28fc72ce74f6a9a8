"""What can be known before any work begins: what cannot end well, and what may be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ..errors import InputError, OutputExistsError, UsageError
from ..files.features import check_alike
from ..files.hdf5 import read_header
from ..files.heads import head_from, load_head, new_head
from ..files.outputs import check_own, refuse_inside
from ..files.partitions import load_partition
from ..files.tables import read_columns
from ..heads import OPTIONS, make_head
from ..heads.base import Head
from ..heads.checks import with_options
from ..options.common import FROZEN_FILE
from ..options.features import ExtractOptions
from ..stages.local_stats import check_participation
from .config import RunConfig, all_files, is_canonical, is_of_run, read_config
from .folder import RunFolder


def check_before(
    config: RunConfig, folder: RunFolder, *, here: bool = True, known: set[str] | None = None
) -> None:
    """Refuse what would fail later: the head, the backbone, paths, files that do not belong.

    The same for `run`, for scripts of jobs and for each cell of a study. No image is read and
    nothing is written.

    ``here``: images are extracted on this machine, so its device and data sets are looked at, too.
    ``known``: what has been checked before; runs that have it in common pass it on.
    """
    refuse_inside(folder.root, folder.WRITES, all_files(config), folder.AT_HOME)
    config.with_absolute_paths().to_toml()  # refuses a path that run.toml cannot name
    of_head = [config.own.head, config.own.full_gram, config.all_head_options(), config.local_stats]
    _once(known, of_head, lambda: _check_head(config))
    places = {split: folder.features(split) for split in ("train", "test")}
    check_rows(config, places, here=here, known=known)
    for path in (folder.root, config.local_stats.cache):
        if path is not None and path.exists() and not path.is_dir():
            raise InputError(f"{path}: expected a folder, found a file; choose another path")


def check_rows(
    config: RunConfig,
    places: Mapping[str, Path],
    *,
    here: bool = True,
    known: set[str] | None = None,
) -> None:
    """Refuse features, partitions and extractions that would fail.

    ``places``: where the features of a split are, or will be.
    """
    own = config.own
    given = [own.train_features, own.test_features, own.partition, config.partition]
    _once(known, given, lambda: _check_given(config))
    for split, place in places.items():
        if config.extract is not None and not place.exists():
            from ..extraction.request import check_extraction  # and all that reads images

            options = ExtractOptions(**{**vars(config.extract), "split": split})
            _once(known, options, partial(check_extraction, options, here=here))


def _once(known: set[str] | None, what: object, check: Callable[[], None]) -> None:
    """Check something unless an equal one has been checked."""
    name = repr(what)
    if known is None or name not in known:
        check()
    if known is not None:
        known.add(name)


def is_linked(given: Path, place: Path, kind: str, overwrite: bool = False) -> bool:
    """Whether a file of the folder is the given one, by its digest; False where none is there.

    Raises `OutputExistsError` where another file is there that has no other name, unless
    ``overwrite``: it would be lost.
    """
    digest: str = read_header(given, kind)["digest"]
    have = read_header(place, kind)["digest"] if place.exists() else None
    if have not in (None, digest) and place.stat().st_nlink == 1 and not overwrite:
        raise OutputExistsError(
            f"{place} exists, and is not {given}: digest {have}, expected {digest}; move it away, "
            "choose another -o, or use --overwrite"
        )
    return bool(have == digest)


def _check_head(config: RunConfig) -> None:
    """Refuse a head that cannot be begun, or not by the run's clients; and --full-gram of another.

    It is for a head that has two exchanges and is made here.
    """
    check_participation(checked_head(config), config.local_stats)
    given, share = config.own.head, config.local_stats.participation
    if config.own.full_gram and not (
        given in OPTIONS
        and OPTIONS[given].for_everybody({})
        and not config.head_options.get("incremental")
        and share == 1
    ):
        raise UsageError(
            "--full-gram is for --head deepafl, made here, without --incremental, where all "
            f"clients take part: found --head {given}, --participation {share:g}; leave it out"
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
    if place.exists() and not overwrite:
        _check_unsaid(config, folder)
    if overwrite or not place.exists() or is_of_run(place, config) or is_canonical(place):
        return
    raise OutputExistsError(
        f"{place} describes another run, with comments of its owner, which would be lost; "
        "choose another -o, or move it away"
    )


def _check_unsaid(config: RunConfig, folder: RunFolder) -> None:
    """Refuse to go on with what was made by the defaults of 0.3 and before, if nothing names them.

    A run.toml has no option that is at its default: one without them may mean those or today's.
    """
    means, head, rows, o = [], folder.first_head, folder.features("train"), config.extract
    unsaid = "ridge" not in config.head_options.keys() | read_config(folder.options).keys()
    if unsaid and config.own.head == "linear" and head.exists():
        means = ["--ridge 0"] if load_head(head)[0].options.as_dict()["ridge"] == 0 else []
    if o is not None and not FROZEN_FILE.path(o.backbone) and rows.exists():
        way = read_header(rows, "features")["space"]["preprocessing"]["name"]
        means += [f"--preprocess {way}"] if way != o.preprocess else []
    if means:
        raise OutputExistsError(
            f"{folder.root} holds a run with {' and '.join(means)}; up to 0.3 a run that named "
            "neither meant --ridge 0 and --preprocess paper: give "
            f"{' '.join(means)} to go on with it, or choose another -o"
        )


def checked_head(config: RunConfig) -> Head:
    """The first head of a run, made of its options or read; one that is solved is refused."""
    given, options = config.first_head, config.all_head_options()
    if given is None:
        if "seed" in options and not hasattr(OPTIONS[config.own.head], "seed"):
            raise UsageError(f"the head {config.own.head!r} draws nothing: leave --head-seed out")
        head = make_head(config.own.head, options)
    else:
        if given.suffix != ".h5" and not given.exists():
            listed = f"the heads are {', '.join(OPTIONS)}, or give a head file"
            raise UsageError(f"there is no head {config.own.head!r}; {listed}")
        head = with_options(head_from(given)[0], **options)
    if head.phase() is None:
        raise UsageError(f"the head {given} is solved: there is nothing left to gather")
    return head


def _check_given(config: RunConfig) -> None:
    """Features fit each other, a partition is one, and a table can be read and has its columns."""
    train, test = config.own.train_features, config.own.test_features
    if train is not None and test is not None:
        check_alike(train, test)
    if config.own.partition is not None:
        read_header(config.own.partition, "partition")
    elif config.partition is not None and config.partition.table is not None:
        read_columns(config.partition.table, (config.partition.column or "client",))


def client_count(config: RunConfig) -> int:
    """The number of clients that a run will have; of a table, at most so many."""
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
    """Whether some clients are kept for validation."""
    if config.own.partition is not None:
        return bool(read_header(config.own.partition, "partition")["held_out"])
    return config.partition is not None and config.partition.held_out > 0


def serves(config: RunConfig, start: Path) -> bool:
    """Whether the first head in a file, perhaps of an earlier version, is that of this run.

    That is so if they differ in nothing but what `solve` is told.
    """
    kept, header = load_head(start)
    if kept.phase() is None or header["name"] != config.own.head:
        return False
    options = config.all_head_options()
    if getattr(kept.options, "compute", None) == "float32":  # the default of 0.3 and before
        options.setdefault("compute", "float32")
    made, _ = new_head(config.own.head, options)
    moved = with_options(kept, **{k: getattr(made.options, k) for k in kept.options.changeable()})
    return moved.options.as_dict() == made.options.as_dict() and moved.digest() == made.digest()
