"""The description of a study: read from TOML, by its name in the package, or from its folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from ... import inputs
from ...errors import InvalidDataError, OutputExistsError, UsageError
from ...files.headers import misfit
from ...files.locks import alone
from ...files.tables import write_json
from ...heads import HEAD_NAMES, HEADS, Names, options_class
from ...inputs import check_key
from ...options.base import absolute, get_fields, get_types
from ...options.features import TableOptions as TableOfRows
from ...runs.config import FIELDS, with_features
from . import grid
from .cells import (
    BASELINE,
    GIVEN,
    LABEL,
    METHODS,
    OF_BOTH,
    SEED,
    Cell,
    StudyFolder,
    draws,
    make_cell,
    method_option_names,
    named,
)
from .options import TableOptions

SECTION = "study"  # the TOML table that does not hold options
TEXTS = ("title", "shows", "needs")
LIKE = "like"  # in the section: another study, whose keys stand where this one has none
SHOWN = ("rows", "columns", "value", "layers", "published")  # options of its table
GONE = ("keep_rounds", "stat")  # of older versions; no result depends on them
SHIPPED = Path(__file__).parent / "shipped"
MOST_CELLS = 10**4
SEVERAL = frozenset(name for name, f in FIELDS.items() if "tuple[" in str(f.info.annotation))
DEFAULT_HEAD = "linear"
#: What every method has; all other options are of some methods.
OF_ALL = OF_BOTH | {LABEL, BASELINE, SEED}
#: Options that a given one puts out of use.
INSTEAD = {
    "train_features": named("extract"),
    "data": GIVEN,
    "partition": named("partition") | {SEED},
}


@dataclass(frozen=True)
class Study:
    """A name, texts, options of its table, a tree of options; ``before``: of 0.3."""

    name: str
    texts: Mapping[str, str]
    shown: TableOptions
    tree: Mapping[str, Any]
    before: bool = False

    @property
    def title(self) -> str:
        return self.texts.get("title", self.name)

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell once, in the order of the study."""
        by_key: dict[tuple[str, str], Cell] = {}
        for given in self._iter_settings():
            setting = {k: v for k, v in given.items() if _has(given, k)}
            cell = make_cell(setting, self.before)
            by_key.setdefault((cell.label, cell.key), cell)
        return list(by_key.values())

    @property
    def left_out(self) -> Iterator[tuple[str, list[str], bool]]:
        """Options of methods, the methods that go without each, and whether another has it."""
        every = [(given, {k for k in given if _has(given, k)}) for given in self._iter_settings()]
        for name in sorted({name for given, own in every for name in given.keys() - own}):
            those = (given for given, own in every if name in given.keys() - own)
            methods = (str(s.get(BASELINE) or s.get("head", DEFAULT_HEAD)) for s in those)
            yield name, list(dict.fromkeys(methods)), any(name in own for _, own in every)

    def _iter_settings(self) -> Iterator[grid.Setting]:
        """Every setting, with options that its method may not have."""
        size = grid.size(self.tree, SEVERAL)
        if not 0 < size <= MOST_CELLS:
            raise UsageError(f"{self.name} has {size:,} cells; expected 1 to {MOST_CELLS:,}")
        return grid.settings(self.tree, SEVERAL)

    def with_options(self, given: Mapping[str, Any], seeds: int | None = None) -> Study:
        """The study with other options; given data or features choose among blocks of data sets."""
        tree, given = self.tree, _absolute(given)
        if seeds is not None:
            given[SEED] = list(range(seeds))
        if given.keys() & {"data", "train_features"}:
            tree = grid.select_data_set(tree, given.get("data"))
        for name, names in INSTEAD.items():
            if name in given:
                tree = grid.drop_keys(tree, names)
        return replace(self, tree=grid.replace_values(tree, given))

    def keep(self, folder: StudyFolder) -> None:
        """Write it into its folder; the folder of another study is refused."""
        with alone(folder.root / "description", wait=True):
            other = read_folder(folder.root) if folder.study.exists() else None
            if other is not None and other.name != self.name:
                raise OutputExistsError(
                    f"{folder.root} holds the study {other.name!r}; expected none or "
                    f"{self.name!r}: choose another -o"
                )
            if other != self:  # so that several processes may work in one folder
                own = {f.name: getattr(self, f.name) for f in fields(Study)}
                described = {**own, "shown": self.shown.changed_options()}
                write_json(described, folder.study, overwrite=True)


def _has(setting: Mapping[str, Any], name: str) -> bool:
    """Whether the method of a setting has an option; of a head file the run finds out."""
    method, head = setting.get(BASELINE), setting.get("head", DEFAULT_HEAD)
    if name in OF_ALL:
        return True
    if method is not None:
        return method not in METHODS or name in method_option_names(method)
    if head not in HEADS:
        return name in FIELDS or name in HEAD_NAMES
    if name == "head_seed":
        return draws(setting)
    return name in FIELDS or name in {f.name for f in fields(options_class(head))}


def open_study(
    spec: str, out: Path | None, options: Mapping[str, Any], seeds: int | None
) -> tuple[Study, StudyFolder]:
    """A study with other options, and its folder: the given one, or that it is read from."""
    if out is None and StudyFolder.is_one(Path(spec)):
        out = Path(spec)
    if out is None:
        raise UsageError("--out is needed: the folder of the study")
    study, names = find(spec), option_names()
    given = {check_key(Path(study.name), k, names, "a study"): v for k, v in options.items()}
    return with_tables(study.with_options(given, seeds)), StudyFolder(out)


def with_tables(study: Study) -> Study:
    """The study with feature files in the place of tables and archives, as `run` takes them."""
    files: dict[str, str] = {}
    for config in {str([c.config.own, c.config.table]): c.config for c in study.cells}.values():
        made = with_features(config).own
        for then, now in ((config.own.train_features, made.train_features),
                          (config.own.test_features, made.test_features)):  # fmt: skip
            if files.setdefault(str(then), str(now)) != str(now):
                raise UsageError(f"{then} beside several training features: import it beforehand")
    if all(then == now for then, now in files.items()):
        return study
    tree = grid.drop_keys(study.tree, get_fields(TableOfRows).keys())

    def change(name: str, value: Any) -> tuple[str, Any]:
        new = [files.get(str(one), one) for one in grid.values(name, value)]
        return name, new if isinstance(value, list) else new[0]

    return replace(study, tree=grid.rewritten(tree, change))


def find(spec: str) -> Study:
    """A study from a TOML file, the name of a shipped study, or the folder of a study."""
    path = Path(spec)
    if StudyFolder.is_one(path):
        return read_folder(path)
    if path.suffix == ".toml" or path.is_file():
        return read_study(path)
    if spec in list_shipped():
        return read_study(SHIPPED / f"{spec}.toml")
    raise UsageError(
        f"there is no study {spec!r}: give a TOML file, the folder of a study, or one of afltool "
        "study --list"
    )


def list_shipped() -> list[str]:
    """Names of the studies in the package, table 2 before table 10."""
    names = [place.stem for place in SHIPPED.glob("*.toml")]
    return sorted(names, key=lambda name: re.sub(r"\d+", lambda n: n[0].zfill(4), name))


def read_study(path: Path, followed: tuple[Path, ...] = ()) -> Study:
    """A study from a TOML file, with the keys of the study that it is like, where it has none.

    Options of methods replace those of the other study at every level, as the command line's do.
    ``followed``: the files of studies that are like this one.
    """
    tree = inputs.read_toml(path, "a study")
    section = tree.pop(SECTION, {})
    if not isinstance(section, Mapping):
        raise InvalidDataError(f"{path}: expected a table [{SECTION}], found {section!r}")
    keys = (*TEXTS, *SHOWN, LIKE)
    given = {check_key(path, k, keys, f"[{SECTION}]"): v for k, v in section.items()}
    for key in (key for key, value in given.items() if not isinstance(value, str)):
        raise InvalidDataError(f"{path}: {key} in [{SECTION}] is a text; found {given[key]!r}")
    texts = {k: v for k, v in given.items() if k in TEXTS}
    shown = TableOptions(**{k: v for k, v in given.items() if k in SHOWN})
    base = _get_parent(path, given[LIKE], followed) if LIKE in given else None
    known = _resolve_keys(path, tree)
    if base is not None:
        texts = {**base.texts, **texts}
        shown = TableOptions(**{**base.shown.changed_options(), **shown.changed_options()})
        of_methods = {k: v for k, v in known.items() if k not in OF_ALL and not grid.blocks(v)}
        own = {k: v for k, v in known.items() if k not in of_methods}
        kept = {k: v for k, v in base.tree.items() if k not in own}
        known = {**base.tree, **own, **grid.replace_values(kept, of_methods)}
    if not known:
        raise UsageError(f"{path} has no options: expected those of `afltool run`, by their names")
    return Study(path.stem, texts, shown, known)


def _get_parent(path: Path, name: str, followed: tuple[Path, ...]) -> Study:
    """The study that the one in ``path`` is like: a file beside it, or a shipped one."""
    if Path(name).name != name or "\0" in name:
        raise UsageError(f"{path} is like {name!r}: expected a study's name, without folders")
    places = (path.with_name(f"{name}.toml"), SHIPPED / f"{name}.toml")
    place = next((one for one in places if one.is_file()), None)
    if place is None:
        raise UsageError(f"{path} is like {name!r}, which is not a study")
    if place in (*followed, path):
        raise UsageError(f"{path} is like {name!r}, which is like it in turn")
    return read_study(place, (*followed, path))


class _Described(Struct, forbid_unknown_fields=True):
    """What the folder of a study says of it; ``before``: of 0.3, which did not say so."""

    name: str
    texts: dict[str, str]
    shown: dict[str, str]
    tree: dict[str, Any]
    before: bool = True


def read_folder(folder: Path) -> Study:
    place = StudyFolder(folder).study
    described = inputs.read_json(place, "a study")
    wrong = misfit(described, _Described)
    if wrong or not described["shown"].keys() <= {*SHOWN, *GONE}:
        raise InvalidDataError(
            f"{place} is not what afltool study writes ({wrong or 'shown'}); remove it and run the "
            "study again"
        )
    tree = _resolve_keys(place, grid.drop_keys(described["tree"], GONE))
    shown = TableOptions(**{k: v for k, v in described["shown"].items() if k not in GONE})
    return Study(described["name"], described["texts"], shown, tree, described.get("before", True))


def option_names() -> Names:
    """Every key that a study may have; those of baselines are looked at for others alone."""
    return Names(lambda: chain([FIELDS, OF_ALL, HEAD_NAMES], map(method_option_names, METHODS)))


def _resolve_keys(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    """`_absolute` of the tree by the names of options; refuses a key that is not an option."""
    names = option_names()
    called = grid.rewritten(tree, lambda key, v: (check_key(path, key, names, "a study"), v))
    return _absolute(called)


def _absolute(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The same tree with absolute paths and with values that JSON has."""
    return grid.rewritten(tree, lambda name, value: (name, _leaf(name, value)))


def _leaf(name: str, value: Any) -> Any:
    f = FIELDS.get(name)
    if isinstance(value, (list, tuple)):
        return [_leaf(name, one) for one in value]
    if isinstance(value, Path) or (isinstance(value, str) and f and Path in get_types(f.info)):
        return str(Path(value).absolute())
    return absolute(f.cls, f.name, value) if f and isinstance(value, str) else value
