"""Writes docs/results/claims.md, the papers' claims and what is known of them, from claims.toml.

The two versions of AFL's table are compared by the published figures of the package.

python docs/make_claims.py
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from afltool.lab.studies.published import load_published, options_in

DATA = Path(__file__).parent / "results" / "claims.toml"
PAGE = DATA.with_suffix(".md")
PAPERS = {
    "afl": "AFL (CVPR 2025)",
    "afl-v1": "AFL, first version (arXiv 2405.16240 v1)",
    "deepafl": "DeepAFL (ICLR 2026)",
    "safle": "SAFLe (CVPR 2026)",
    "ours": "No paper's",
}
VERDICTS = {
    "holds": "measured or proved here as the paper has it, on other features",
    "holds in order": "the direction is the paper's; the size of it is another, or not known",
    "does not hold": "measured here, and it is otherwise; backbone or data set may be why",
    "cannot be tested here": "its data set, weights, size or hours are not at hand",
}
HEAD = """\
# The papers' claims, one by one

    python docs/make_claims.py                # makes this page of claims.toml

Every table, figure and theorem of the three papers, and what is known of it here. *Published* are
the papers' figures: top-1 in % on ResNet-18 where no unit stands. *Here* are figures of the pages
named beside, on EfficientNet-Lite0 ([the set-up](README.md)); there the commands are. So levels
cannot be compared, orders and distances can. A claim that does not hold here may hold on the
authors' features: nothing on this page says that a published figure was measured wrongly.

"""
VERSIONS = """
Of the 96 cells of both versions these {} differ; the others, and every ±, are the same. Top-1, %:

| method | data | α | first version | later |
| --- | --- | --- | --- | --- |
"""
COLUMNS = ("place", "claim", "checked by", "published", "here", "verdict")
DEVIATIONS = """
## What is done otherwise here

What our presets, defaults or pages do that the papers do not, or do not say, and what it changes.

| paper | here | what it changes | known from |
| --- | --- | --- | --- |
"""
REFERENCES = """
## Independent references

What the theorems and equations are tested against: NumPy, SciPy or another program, none of the
package's own solvers.

| paper | equation | what is written out | test |
| --- | --- | --- | --- |
"""


def page(told: dict[str, Any]) -> str:
    """The page, as Markdown."""
    claims = [one for one in told["claim"] if one["paper"] != "ours"]
    counts = Counter(one["verdict"] for one in claims)
    text = HEAD + f"| verdict | of {len(claims)} | meaning |\n| --- | ---: | --- |\n"
    text += "".join(f"| {name} | {counts[name]} | {why} |\n" for name, why in VERDICTS.items())
    for paper, title in PAPERS.items():
        text += f"\n## {title}\n\n" + _row(*COLUMNS) + _row(*["---"] * len(COLUMNS))
        text += "".join(_claim(one) for one in told["claim"] if one["paper"] == paper)
        text += versions() if paper == "afl-v1" else ""
    text += DEVIATIONS + "".join(_deviation(one) for one in told["deviation"])
    return text + REFERENCES + "".join(_reference(one) for one in told["reference"])


def versions() -> str:
    """The cells of AFL's main table that the later version has otherwise, side by side."""
    first, later = (load_published(name) for name in ("afl-v1-2", "afl-1"))
    both = first.merge(later, on=options_in(first), suffixes=("", "_later"))
    rows = [
        _row(one["head"], one["data"], f"{one['alpha']}", _top1(one), _top1(one, "_later"))
        for one in both[both["top1"] != both["top1_later"]].to_dict("records")
    ]
    return VERSIONS.format(len(rows)) + "".join(rows)


def _top1(one: Any, of: str = "") -> str:
    return f"{100 * one[f'top1{of}']:.2f} ± {100 * one[f'spread{of}']:.2f}"


def _claim(one: dict[str, Any]) -> str:
    checked = [_checked(by) for by in dict.fromkeys([*one["by"], *one.get("from", [])])]
    cells = (", ".join(one["place"]), one["says"], ", ".join(checked), one.get("published", "–"))
    return _row(*cells, one["ours"], f"**{one['verdict']}**")


def _deviation(one: dict[str, Any]) -> str:
    sources = ", ".join(map(_checked, [*one.get("from", []), *one.get("by", [])])) or "–"
    return _row(one["of"], one["what"], one["changes"], sources)


def _reference(one: dict[str, Any]) -> str:
    return _row(one["paper"], one["equation"], one["what"], ", ".join(map(_checked, one["by"])))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _checked(by: str) -> str:
    """A study, a test or a page, as a link where the site has it."""
    if by.startswith("docs/"):
        return f"[{Path(by).name}]({'../' * (not by.startswith('docs/results/'))}{_within(by)})"
    return f"`{by.removeprefix('tests/')}`"


def _within(page: str) -> str:
    return page.removeprefix("docs/results/").removeprefix("docs/")


if __name__ == "__main__":
    PAGE.write_text(page(tomllib.loads(DATA.read_text("utf-8"))), "utf-8")
