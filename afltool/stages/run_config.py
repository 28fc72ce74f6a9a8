"""Everything that a whole run can be told, from options or a TOML file; light to import."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, InputError, UsageError
from ..heads import OPTIONS
from ..heads.options import option
from ..typed import typed


@dataclass(frozen=True)
class RunConfig:
    """The options of `run`; names are those of the stages (seeds by their stage)."""

    data: str | None = option(
        None, "digits, fashion-mnist, cifar10, cifar100, imagefolder:PATH, table:FILE …"
    )
    backbone: str | None = option(None, "resnet18, vit_b_16, efficientnet_lite0 …")
    weights: str = option("default", "default, random, a weights name, or a file")
    node: str | None = option(None, "a layer or graph node instead of the classifier's input")
    preprocess: str = option("paper", "paper (resize, mean 0.5, std 0.5) or weights")
    image_size: int | None = option(None, "side of the images that the backbone sees (224)")
    classes: Path | None = option(None, "class names in order, one a line")
    limit: int | None = option(None, "at most so many images of a split, spread over classes")
    dtype: str = option("int16", "int16 (exact sums) or float32")
    fraction_bits: int = option(9, "fraction bits of int16 features; 9: range ±64")
    precision: str = option("fp32", "the backbone's arithmetic: fp32, bf16, fp16")
    batch_size: int | None = option(
        None, "images a step of the network (16 on a CPU, 256 on a GPU)"
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:1 …")
    data_root: Path | None = option(None, "where data sets lie or are downloaded to")
    checksums: Path | None = option(None, "md5sum lines to trust instead of the published ones")
    store: Path | None = option(None, "folder of cached features ($AFLTOOL_STORE, ./afl-store)")
    skip_corrupt: bool = option(False, "leave out images that cannot be read, counting them")
    train_features: Path | None = option(None, "training features instead of --data and --backbone")
    test_features: Path | None = option(None, "test features instead of --data and --backbone")
    clients: int | None = option(None, "number of clients K (100)")
    scheme: str = option("dirichlet", "how rows are dealt; see partition")
    alpha: float | None = option(None, "Dirichlet α (0.1)")
    shards_per_client: int | None = option(None, "shards a client")
    min_size: int | None = option(None, "draw again until every client has so many rows")
    held_out: float = option(0.0, "share of clients kept to choose the ridge (and layers) by")
    participation: float = option(
        1.0, "share of the clients that take part, drawn anew for each layer of a head"
    )
    label_noise: float = option(0.0, "share of rows whose label is flipped")
    partition_seed: int = option(0, "seed of the partition")
    head: str = option("linear", "a head file, or a head's name")
    head_seed: int | None = option(None, "seed of the head's random parts")
    keep_clients: bool = option(False, "write one statistics file a client instead of their sum")
    cache: Path | None = option(
        None, "folder that saves later rounds of a head the work of earlier ones"
    )
    threads: int = option(1, "BLAS threads of the solve")
    each_round: bool = option(
        False, "evaluate the head after every round on the test rows; nothing is chosen by it"
    )
    head_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.train_features is None) != (self.test_features is None):
            raise UsageError("--train-features and --test-features go together")
        if not 0 < self.participation <= 1:
            raise UsageError(f"--participation is above 0, at most 1; found {self.participation}")
        if self.train_features is None and (self.data is None or self.backbone is None):
            raise UsageError(
                "a run needs --data and --backbone (or --train-features and --test-features)"
            )


def read_config(path: Path) -> dict[str, Any]:
    """Options from a TOML file: the long option names as keys, in any tables.

    Raises `UsageError` for a key that is no option, naming the nearest one.
    """
    return {_known(path, key): value for key, value in _flat(path, read_toml(path)).items()}


def read_toml(path: Path) -> dict[str, Any]:
    """The tree of a TOML file; errors name the file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise CorruptFileError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is not UTF-8 text: {error}") from None


def options_of(config: RunConfig) -> dict[str, Any]:
    """The options of a run that are not their defaults: `make_config` makes it again of them."""
    own = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "head_options"}
    defaults = {f.name: f.default for f in fields(config)}
    chosen = {name: value for name, value in own.items() if value != defaults[name]}
    return {**chosen, **config.head_options}


def to_toml(config: RunConfig) -> str:
    """The TOML file that `read_config` reads the same run from."""
    lines = [f"{k.replace('_', '-')} = {_toml(v)}" for k, v in options_of(config).items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The same run from any working directory: every path that it names is absolute."""
    own = {f.name: _absolute(getattr(config, f.name)) for f in fields(config)}
    if config.head in OPTIONS:
        own["head"] = config.head
    own["head_options"] = {k: _absolute(v) for k, v in config.head_options.items()}
    return replace(config, **own)


def _absolute(value: Any) -> Any:
    if isinstance(value, Path):
        return value.absolute()
    if not isinstance(value, str):
        return value
    kind, colon, rest = value.partition(":")
    if colon and kind == "imagefolder":
        return f"{kind}:{Path(rest).absolute()}"
    return str(Path(value).absolute()) if Path(value).is_file() else value


def _flat(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _flat(path, value) if isinstance(value, dict) else {key: value}
        twice = found.keys() & inner.keys()
        if twice:
            raise UsageError(f"{path} gives {min(twice)!r} more than once")
        found.update(inner)
    return found


def _known(path: Path, key: str) -> str:
    name = key.replace("-", "_")
    names = [f.name for f in fields(RunConfig) if f.name != "head_options"]
    names += [f.name for cls in OPTIONS.values() for f in fields(cls)]
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
        raise UsageError(f"{path}: {key!r} is no option of run{hint}")
    return name


def make_config(given: Mapping[str, Any]) -> RunConfig:
    """A `RunConfig` from options by name; those of the head go where they belong."""
    own = {f.name: f for f in fields(RunConfig)}
    head_options = {k: v for k, v in given.items() if k not in own}
    values = {k: typed(own[k].type, k, v) for k, v in given.items() if k in own}
    return RunConfig(**values, head_options=head_options)
