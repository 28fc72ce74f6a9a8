"""The model card: what an exported file is, in Markdown by the template card.md; data by counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.evaluations import figure_label
from ..values.text import escape_markdown

CARD = Path(__file__).with_suffix(".md")
MANY = 50  # classes or columns whose names and accuracies are listed


def card(
    metadata: Mapping[str, Any],
    report: Mapping[str, Any],
    file: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
) -> str:
    """The text of a card, of the file's ``metadata``, the head's ``report``, facts of the ``file``
    by their names on the card, and what `evaluate` found, or None."""
    from jinja2 import Environment

    made = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=escape_markdown
    )
    made.filters |= {"chosen": _chosen, "pairs": _pairs, "listed": _format_list, "figure": _figure}
    made.filters["label"] = figure_label
    template = made.from_string(CARD.read_text(encoding="utf-8"))
    return template.render(**metadata, report=report, file=file, test=evaluation, many=MANY)


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, False, "")}


def _pairs(settings: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{k} {v}" for k, v in (settings or {}).items() if k != "fingerprint")


def _format_list(names: Sequence[str]) -> str:
    return ", ".join(names[:MANY]) + f" … ({len(names)} in all)" * (len(names) > MANY)


def _figure(one: Any) -> str:
    if isinstance(one, Mapping):
        ends = [_figure(one[end]) for end in ("low", "high") if end in one]
        return _figure(one.get("value")) + (f" (95 %: {' to '.join(ends)})" if ends else "")
    return f"{one:.4f}" if isinstance(one, int | float) else "undetermined"
