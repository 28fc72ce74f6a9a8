"""The papers' published figures, as records beside ours.

They were measured with the papers' own backbones and weights, which are not always the same as
those here; every row says that it is published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.columns import read_columns
from .crosstab import Record, plain

TABLE = Path(__file__).with_name("published.csv")
COLUMNS = ("paper", "table", "setting", "method", "metric", "value")
NOT_STATED = "not stated"  # the data set of a table whose paper does not name it
DATA = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny-ImageNet": "tiny-imagenet"}
BACKBONES = {"ResNet-18": "resnet18", "VGG11": "timm:vgg11", "ViT-B-16": "vit_b_16"}
FIGURES = {
    "top1": ("top1", 100.0), "train top1": ("train_top1", 100.0), "seconds": ("seconds", 1.0),
    "top1 with RI removal": ("top1", 100.0), "top1 without RI removal": ("top1", 100.0),
    "sum of abs deviation": ("deviation", 1.0),
    **{name: (name.lower(), 1.0) for name in ("CSR", "IFS", "DM")},
    **{f"train {name}": (f"train_{name.lower()}", 1.0) for name in ("CSR", "IFS", "DM")},
}  # fmt: skip


def _power(text: str) -> float:
    """2^{10} as 1024."""
    base, _, power = text.replace("{", "").replace("}", "").partition("^")
    return float(float(base) ** float(power or 1))


Parsed = Callable[[str], Any]
#: How a setting of a paper is called here: pattern → option and its value.
SETTINGS: tuple[tuple[str, str, Parsed], ...] = (
    (r"alpha = ([\d.]+)", "alpha", float),
    (r"\bs = (\d+)", "shards_per_client", int),
    (r"\bK ?= ?(\d+)", "clients", int),
    (r"\bT = (\d+)", "layers", int),
    (r"lambda = ([\d.]+)", "ridge", float),
    (r"d_Phi = ([\d^{}]+)", "feature_width", _power),
    (r"d_F = ([\d^{}]+)", "hidden_width", _power),
    (r"^d = ([\d^{}]+)", "width", _power),
    (r"buckets=(\d+)", "buckets", int),
    (r"^(Integer|OneHot|Binary Overlap)", "bucketing",
     lambda text: {"Integer": "integer", "OneHot": "onehot"}.get(text, "overlap")),
    (r"label noise (\d+)$", "label_noise", lambda text: int(text) / 100),
    (r"label noise (0\.\d+)", "label_noise", float),
    (r"^(?:in)?consistent participation (\d+)", "participation", lambda text: int(text) / 100),
    (r"^((?:in)?consistent) participation", "participation_kind", str),
    (r"^(None|GELU|ReLU|LeakyReLU|Tanh|Hardwish|Softshrink)$", "activation",
     lambda text: {"LeakyReLU": "leaky-relu", "Hardwish": "hardswish"}.get(text, text.lower())),
    (r"^(IID)$", "scheme", str.lower),
    (r"\b(alpha) = ", "scheme", lambda _: "dirichlet"),
    (r"^(ResNet-18|VGG11|ViT-B-16)$", "backbone", lambda text: BACKBONES[text]),
)  # fmt: skip
GAMMA = {"afl": "gamma", "deepafl": "block_ridge"}  # one letter for two things


@lru_cache(maxsize=1)
def _table() -> list[dict[str, str | None]]:
    columns = read_columns(TABLE, COLUMNS, ("dataset", "spread"))
    lists = list(zip(*columns.values(), strict=True))
    return [dict(zip(columns, values, strict=True)) for values in lists]


def names() -> list[str]:
    """PAPER-TABLE of every table that has figures."""
    return list(dict.fromkeys(f"{one['paper']}-{one['table']}" for one in _table()))


def published(name: str) -> list[Record]:
    """The figures of one table of a paper, such as afl-1 or deepafl-12; a data set may follow."""
    wanted = name.partition(":")[0].replace("table", "")
    found = [one for one in _table() if f"{one['paper']}-{one['table']}" == wanted]
    if not found:
        raise UsageError(f"there are no published figures {name!r}; known are {', '.join(names())}")
    return [_record(one) for one in found]


def _record(one: dict[str, str | None]) -> Record:
    setting, method, metric = (str(one[key] or "") for key in ("setting", "method", "metric"))
    figure, factor = FIGURES.get(metric, (metric, 1.0))
    axes: dict[str, Any] = {"data": DATA.get(str(one["dataset"]), str(one["dataset"]))}
    for pattern, option, parsed in SETTINGS:
        for text in (setting, method):
            if (met := re.search(pattern, text)) is not None:
                axes.setdefault(option, parsed(met[1]))
    if (met := re.search(r"gamma = ([\d.]+)", setting)) is not None:
        axes[GAMMA.get(str(one["paper"]), "gamma")] = float(met[1])
    head = re.sub(r"\s*(\(\s*)?\bT = \d+(\s*\))?| \(\d{4}[a-z]?\)", "", method).strip()
    if metric.startswith("top1 with"):
        head += f", {metric.removeprefix('top1 ')}"
    axes["head"] = head
    known = {k: v for k, v in axes.items() if k not in ("head", "data")}
    if setting and not known:
        axes["setting"] = setting
    value, spread = str(one["value"]), one["spread"]
    try:
        figures = {figure: float(value) / factor}
    except ValueError:  # such as "<5"
        return Record(axes, {}, value, kind="published")
    return Record(
        axes, figures, spread=None if spread is None else float(spread) / factor, kind="published"
    )


def beside(name: str, ours: Sequence[Record], columns: Sequence[str]) -> list[Record]:
    """Published records that have a column in our table: our data, and settings that we have.

    Given feature files do not tell their data set: ``afl-1:cifar10`` says that ours is that one.
    Figures of a data set that the paper does not name stand beside any.
    """
    name, _, told = name.partition(":")
    there = {NOT_STATED, *(told or record.axes.get("data") for record in ours)}
    keys = {tuple(plain(r.axes.get(c)) for c in columns) for r in ours}
    return [
        one
        for one in published(name)
        if one.axes["data"] in there and tuple(plain(one.axes.get(c)) for c in columns) in keys
    ]
