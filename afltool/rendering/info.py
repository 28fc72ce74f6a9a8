"""What `info` says of a file at first sight: a few lines, the digest on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..files.evaluations import figure_text
from ..values.text import COLUMNS, PIXELS
from .terminal import print_words, stdout_console

Facts = Mapping[str, Any]
FEW = 8  # names that are listed
_LEFT_OUT = "{:,} images that cannot be read, such as {}; --field source.skipped lists them"


def print_brief(facts: dict[str, Any]) -> None:
    """Kind, digest, rows, classes, clients, ridge of what `stages.inspect.info` finds."""
    rows = {"kind": facts["kind"], "digest": facts["digest"], **_LINES[facts["kind"]](facts)}
    if facts["checked"] != "all":
        rows["checked"] = facts["checked"]
    print_words(stdout_console(), ((k, v) for k, v in rows.items() if v), bold=True)


def _features(facts: Facts) -> dict[str, str]:
    source, skipped = facts["source"], facts["source"].get("skipped") or ()
    split = source.get("split_from", source).get("part", source.get("split"))
    return {
        "rows": f"{facts['rows']:,} of {facts['dim']:,} features",
        "classes": _names(facts["classes"]),
        "data": ", ".join(str(part) for part in (source.get("data"), split) if part),
        "left out": _LEFT_OUT.format(len(skipped), skipped[0]["row"]) if skipped else "",
        **_space(facts["space"]),
    }


def _partition(facts: Facts) -> dict[str, str]:
    sizes, classes = facts["rows_per_client"], facts["classes_per_client"]
    held = len(facts["held_out"])
    notes = [f"{min(sizes):,} to {max(sizes):,} rows each"]
    notes += [f"{min(classes):,} to {max(classes):,} classes each"]
    notes += [f"{facts['empty_clients']:,} empty"] if facts["empty_clients"] else []
    notes += [f"{held:,} held out"] if held else []
    scheme = {k: v for k, v in facts["scheme"].items() if v not in (None, False)}
    parts = [scheme.pop("scheme", "unknown")]
    parts += [f"{k.replace('_', ' ')} {v}" for k, v in scheme.items() if k != "clients"]
    return {
        "rows": f"{facts['rows']:,}",
        "classes": _names(facts["classes"]),
        "clients": f"{_names(facts['names'])}; {', '.join(notes)}",
        "scheme": ", ".join(map(str, parts)),
    }


def _statistics(facts: Facts) -> dict[str, str]:
    context, gammas = facts["context"], [g for g in facts["gammas"] if g != "0"]
    return {
        "rows": f"{facts['rows']:,}",
        "classes": _names(context["classes"]),
        "clients": _names(facts["client_names"]),
        "head": f"{context['head']['name']}, phase {facts['phase']}",
        **_space(context["space"]),
        "γ": f"{', '.join(gammas[:FEW])} of clients, for --law pairwise" if gammas else "",
        **{f"head {i}": _format_count(one) for i, one in enumerate(facts.get("evaluations", ()))},
    }


def _format_count(one: Facts) -> str:
    text = figure_text(one["metrics"]["accuracy"])
    return f"{one['head']['name']} {one['head']['digest'][:12]}: accuracy {text}"


def _head(facts: Facts) -> dict[str, str]:
    report, clients = facts["report"], facts["provenance"].get("clients")
    rounds, options = report.get("phases", []), facts["options"]
    state = "solved" if facts["phase"] is None else f"next phase {facts['phase']}"
    rows = report.get("rows") or next((r["rows"] for r in rounds[-1:] if r.get("rows")), None)
    ridge = options.get("ridge")
    if "ridge" in report:  # the one that was chosen; before that what the options say
        by = f" ({report['ridge_by']})" if report.get("ridge_by") else ""
        ridge = f"{report['ridge']:.6g}{by}"
    state += f", {options['method']}" if "method" in options else ""
    return {
        "head": f"{facts['name']}, {state}" + (f" in {len(rounds)} rounds" if rounds[1:] else ""),
        "rows": f"{rows:,}" if rows else "",
        "clients": f"{clients:,}" if clients else "",
        "classes": "" if facts["classes"] is None else _names(facts["classes"]),
        "ridge": "" if ridge is None else str(ridge),
        **(_space(facts["space"]) if facts["space"] else {}),
    }


def _backbone(facts: Facts) -> dict[str, str]:
    about = facts["backbone"]
    shown = {name: str(about[name]) for name in ("name", "weights", "node", "dim", "licence")}
    side = about["preprocessing"].get("crop")
    return {**shown, "image": f"{side} × {side} pixels"}


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:FEW]) + (", …" if len(names) > FEW else "")
    return f"{len(names):,}: {listed}" if names else "none"


def _space(space: Facts) -> dict[str, str]:
    """The network, the node and the number format of features, and their names."""
    bits, scaling = space.get("fraction_bits"), space.get("scaling")
    numbers = space.get("dtype", "any number format")
    numbers += "" if bits is None else f" with {bits} fraction bits"
    scaled = f"scaled by {scaling[:12]}" if scaling else None
    made = ", ".join(filter(None, (space.get("backbone"), space.get("node"), numbers, scaled)))
    images = PIXELS if space.get("preprocessing") else ""
    names = _names(space[COLUMNS]) if COLUMNS in space else ""
    return {"backbone": made, "images": images, COLUMNS: names}


_LINES: dict[str, Any] = {
    "features": _features,
    "partition": _partition,
    "statistics": _statistics,
    "head": _head,
    "backbone": _backbone,
}
