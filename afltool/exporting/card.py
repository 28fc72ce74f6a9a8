"""The model card: what an exported file is, in Markdown; data by counts only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..files.own_files import figure_label
from ..values.text import COLUMNS, in_markdown

TO_FILL_IN = (
    ("Intended use", "For which decisions, by whom, on which pictures or features?"),
    ("Not intended use", "What must it not be used for?"),
    (
        "Where the data come from",
        "Which sites, which years, which consent? Which groups are under-represented?",
    ),
    ("Who answers for it", "Name, address, date of this card."),
)
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
    head = metadata["head"]
    parts = [
        [f"# Model card: {in_markdown(head['name'])} head, {len(metadata['classes'])} classes"],
        [
            "Written by `afltool export`. What a program knows stands here; what only people know "
            "is left open, and a card with open parts is not finished."
        ],
        ["## File", "", *_table(file)],
        ["## Model", "", *_table(_model(metadata))],
        ["## Training data, by counts only", "", *_table(_data(metadata, report))],
        ["## Figures", "", *_figures(evaluation)],
        *([f"## {title}", "", f"**To be filled in by a person.** {q}"] for title, q in TO_FILL_IN),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _model(metadata: Mapping[str, Any]) -> dict[str, Any]:
    head, space = metadata["head"], metadata["space"]
    given = metadata["input"]
    prepared = [f"{k} {v}" for k, v in (space["preprocessing"] or {}).items() if k != "fingerprint"]
    chosen = {k: v for k, v in head["options"].items() if v not in (None, False, "")}
    facts = {
        "Head": head["name"],
        "Digest of the head": head["digest"],
        "Options of the head": ", ".join(f"{k} {v}" for k, v in chosen.items()) or "none",
        "Classes": _listed(metadata["classes"]),
        "Input": f"{given['name']}, {given['type']}, {' × '.join(map(str, given['shape']))}",
        **({"Columns": _listed(space[COLUMNS])} if COLUMNS in space else {}),
        "Rounding of features": metadata["rounding"],
        "Backbone": space["backbone"],
        "Digest of its weights": space["weights"] or "not known: features were imported",
        "Node": space["node"] or "not known",
        "Preprocessing": ", ".join(prepared) or "not known",
    }
    outputs = {f"Output {name}": what for name, what in metadata["outputs"].items()}
    return facts | outputs


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MANY]) + f" … ({len(names)} in all)" * (len(names) > MANY)


def _data(metadata: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of the report: nothing of any single row or client."""
    rounds = report.get("phases") or []
    facts = {
        "Rows": report.get("rows", "not known"),
        "Clients": max((r.get("clients", 0) for r in rounds), default="not known"),
        "Rounds": len(rounds) or "not known",
        "Classes": len(metadata["classes"]),
        "Features": metadata["space"]["dim"],
    }
    for key, name in (("ridge", "Ridge"), ("training_mse", "Squared error per training row")):
        if isinstance(report.get(key), int | float):
            facts[name] = f"{report[key]:.6g}"
    return facts


def _figures(evaluation: Mapping[str, Any] | None) -> Iterator[str]:
    if evaluation is None:
        yield "**None were given.** `afltool evaluate HEAD TEST -o test.json`, then `--metrics`."
        return
    facts: dict[str, Any] = {
        "Rows of the test": evaluation["n"],
        "Digest of the test's features": evaluation["features"]["digest"],
        "Top-1 accuracy": f"{evaluation['top1']:.4f}",
    }
    if isinstance(evaluation.get("top5"), float):
        facts["Top-5 accuracy"] = f"{evaluation['top5']:.4f}"
    for name, one in (evaluation.get("metrics") or {}).items():
        facts[figure_label(str(name), one)] = _figure(one)
    yield from _table(facts)
    per_class = evaluation.get("per_class") or {}
    if 0 < len(per_class) <= MANY:
        yield ""
        yield from _table({f"Accuracy of {c}": _figure(v) for c, v in per_class.items()})


def _figure(one: Any) -> str:
    if isinstance(one, Mapping):
        value = _figure(one.get("value"))
        if "low" in one and "high" in one:
            return f"{value} (95 %: {_figure(one['low'])} to {_figure(one['high'])})"
        return value
    return f"{one:.4f}" if isinstance(one, int | float) else "undetermined"


def _table(rows: Mapping[str, Any]) -> list[str]:
    lines = [f"| {in_markdown(name)} | {in_markdown(value)} |" for name, value in rows.items()]
    return ["| | |", "| --- | --- |", *lines]
