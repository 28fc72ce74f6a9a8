"""The model card: what an exported file is, in Markdown; data by counts only.

`card.md` is its template. Whatever is put into it says itself and does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.evaluations import figure_label
from ..values.text import in_markdown

CARD = Path(__file__).with_suffix(".md")
MANY = 50  # classes or columns whose names and accuracies are listed


def card(
    metadata: Mapping[str, Any],
    report: Mapping[str, Any],
    file: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
) -> str:
    """The text of a card.

    ``metadata``: that of the exported file; ``report``: the head's; ``file``: facts of the file, by
    their names on the card; ``evaluation``: what `evaluate` found, or None.
    """
    from jinja2 import Environment

    made = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=in_markdown
    )
    made.filters |= {"chosen": _chosen, "pairs": _pairs, "listed": _listed}
    made.filters |= {"figure": _figure, "label": figure_label}
    template = made.from_string(CARD.read_text(encoding="utf-8"))
    return template.render(**metadata, report=report, file=file, test=evaluation, many=MANY)


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, False, "")}


def _pairs(settings: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{k} {v}" for k, v in (settings or {}).items() if k != "fingerprint")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MANY]) + f" … ({len(names)} in all)" * (len(names) > MANY)


def _figure(one: Any) -> str:
    if isinstance(one, Mapping):
        value = _figure(one.get("value"))
        if "low" in one and "high" in one:
            return f"{value} (95 %: {_figure(one['low'])} to {_figure(one['high'])})"
        return value
    return f"{one:.4f}" if isinstance(one, int | float) else "undetermined"
