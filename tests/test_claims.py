"""The page of the papers' claims: complete, its figures stand where it says, its tests exist."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from afltool.papers.description import find, shipped_names
from afltool.papers.options import FIGURES
from afltool.papers.published import options_in, papers, published

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from make_claims import DATA, PAGE, PAPERS, VERDICTS, page  # noqa: E402  (docs is no package)

TOLD = tomllib.loads(DATA.read_text("utf-8"))
CLAIMS = TOLD["claim"]
#: Tables, figures, theorems and lemmas of each paper, and sections whose sentences have numbers.
CONTENTS = {
    "afl": [*(f"table {n}" for n in (1, 2, 3, 4, "A.1", "A.2", "A.3")), "figure 1", "figure 2",
            "figure 3", "lemma 1", "theorem 1", "theorem 2", "abstract", "section 4.2"],
    "afl-v1": ["table 1", "table 2", "table 3", "table 4", "figure 1", "figure 2"],
    "deepafl": [*(f"table {n}" for n in range(1, 32)), *(f"figure {n}" for n in range(1, 17)),
                "lemma 1", "lemma 2", "theorem 1", "theorem 2", "theorem 3", "abstract",
                *(f"section {s}" for s in ("4.2", "E.3.2", "E.3.4", "E.3.5", "E.3.6", "O", "P"))],
    "safle": ["table 1", "table 2", "table 3", *(f"figure {n}" for n in range(1, 7)), "lemma 1",
              "theorem 1"],
}  # fmt: skip
#: Figures of sentences of the papers, which stand in what a claim says or in its published figures.
SENTENCES = {
    "afl": "73.50 64.07, 56.62 32.99, 57.55 36.12, 57.72 57.89, 150 200 236.61 30,000 50,000, "
    "58.56 49.62, 12.04 16.36, 35.87 19.31",
    "afl-v1": "12,000 20,000 50 100, 53.86 53.65",
    "deepafl": "2.1, 5.68 8.42, 9 31.38 9.95, 10.41 25.97 18.65 32.8, 1.5, 50.2, 99.7 99.6, 70.1, "
    "3.64 9.25 1.90 3.43 8.68 22.2 2.70 5.87, 0.05, 5 2, 5.06 2.73, 156.21 1.56 33,000, 0.7, "
    "65.14 64.81 61.54 61.36, 60.91, 0.5 1.1 2, 10 2.5 91.74 90, 23.6 8.39 91.74 50.05",
    "safle": "90.73 4.3 70.61 64.58, 41, 70 146 60 170, 95.31 93.18 77.83 76.63, "
    "69.47 67.82 66.53 62.94 69.8 68.5 68.9 63.3 63.6 61.9 59.6 53.9",
}
NUMBER = re.compile(r"(?<![\w.^⁻-])\d[\d,.]*\d|(?<![\w.^⁻-])\d")


def places(paper):
    return {place for one in CLAIMS if one["paper"] == paper for place in one["place"]}


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(TOLD), "python docs/make_claims.py makes it"


@pytest.mark.parametrize("paper", CONTENTS)
def test_every_table_figure_and_theorem_has_a_claim(paper):
    assert not set(CONTENTS[paper]) - places(paper)


def test_every_published_table_and_every_shipped_study_has_a_claim():
    for name in papers():
        paper, _, table = name.rpartition("-")
        assert f"table {table}" in places(paper), name
    named = {by for one in CLAIMS for by in one["by"]}
    assert not set(shipped_names()) - named
    assert {one["paper"] for one in CLAIMS} == set(PAPERS)
    assert {one["verdict"] for one in CLAIMS} == set(VERDICTS)


def test_what_checks_a_claim_exists():
    known = set(shipped_names())
    for by in (by for one in (*CLAIMS, *TOLD["deviation"]) for by in one.get("by", [])):
        file, _, name = by.partition("::")
        if name:
            assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), by
        else:
            assert by in known or (ROOT / by).is_file(), by


def told():
    for one in CLAIMS:
        yield one["ours"], one.get("from", [])
    for one in TOLD["deviation"]:
        yield one["changes"], one.get("from", [])


def test_our_figures_stand_in_the_files_that_are_named():
    """A figure with a point is a measured one; it stands in a named file as it is written."""
    missing = []
    for text, files in told():
        there = {n for file in files for n in NUMBER.findall((ROOT / file).read_text("utf-8"))}
        figures = {n for n in NUMBER.findall(text) if "." in n}
        missing += [(n, text) for n in sorted(figures - there)]
    assert not missing


def test_published_figures_are_the_papers():
    """Every figure of a claim about tables with two digits behind the point is in the paper's."""
    of = {paper: {f"{v * f:.2f}" for name in papers() if name.startswith(paper.split("-")[0])
                  for figure in FIGURES if figure in published(name)
                  for v in published(name)[figure].dropna() for f in (100, 1)}
          for paper in PAPERS}  # fmt: skip
    wrong = []
    for one in CLAIMS:
        tables = {f"{one['paper']}-{place.removeprefix('table ')}" for place in one["place"]}
        if tables & set(papers()):
            plain = re.sub(r"\S+e-?\d+|α = \S+|\(0\.\d+\)|± \S+", "", one.get("published", ""))
            found = {n for n in NUMBER.findall(plain) if re.fullmatch(r"\d+\.\d\d", n)}
            wrong += [(n, one["says"]) for n in sorted(found - of[one["paper"]])]
    assert not wrong


@pytest.mark.parametrize("paper", SENTENCES)
def test_every_sentence_with_numbers_has_a_claim(paper):
    """All figures of a sentence stand in one claim."""
    told = [set(NUMBER.findall(f"{one['says']} {one.get('published', '')}"))
            for one in CLAIMS if one["paper"] == paper]  # fmt: skip
    lacking = [one for one in SENTENCES[paper].split(", ")
               if not any(set(one.split()) <= figures for figures in told)]  # fmt: skip
    assert not lacking


def test_the_two_versions_of_afl_differ_in_fourteen_cells():
    """The seven rivals at α = 0.1 on CIFAR-100 and Tiny-ImageNet; each ± is the same in both."""
    first, later = (published(name) for name in ("afl-v1-2", "afl-1"))
    both = first.merge(later, on=options_in(first), suffixes=("", "_later"))
    assert len(both) == len(first) == len(later) == 96
    assert (both["spread"] == both["spread_later"]).all()
    changed = both[both["top1"] != both["top1_later"]].to_dict("records")
    assert len(changed) == 14
    assert {(one["data"], one["alpha"]) for one in changed} == {
        ("cifar100", 0.1), ("tiny-imagenet", 0.1),
    }  # fmt: skip
    assert "AFL" not in {one["head"] for one in changed}


def settings(name, *of):
    """The values of these options in the cells of a study, each combination once."""
    return {tuple(cell.setting.get(one) for one in of) for cell in find(name).cells}


@pytest.mark.parametrize("number", [*range(9, 24), 30])
def test_tables_9_to_23_and_30_have_the_ridges_of_their_printed_figures(number):
    deep = settings(f"deepafl-table{number}", "head", "ridge", "block_ridge")
    assert deep - {("linear", 0, None)} == {("deepafl", 1, 0.1)}


def test_studies_have_what_their_tables_have():
    table_30 = settings("deepafl-table30", "label", "layers", "from_phi0")
    assert ("DeepAFL, modified (89)", 30, True) in table_30
    assert settings("deepafl-table8", "width") == {(2**n,) for n in range(7, 14)}
    assert ("cifar100", "DeepAFL", 0.01) in settings("deepafl-table24", "data", "label", "alpha")
    assert {rounds for _, rounds in settings("afl-v1-table2", "label", "rounds")} == {None, 200}
    assert len(settings("afl-figure3", "label", "alpha")) == 8
    codes = settings("safle-table2", "bucketing", "buckets", "group_size", "every_digit")
    assert len(codes) == 14  # integer codes of one digit beside those of two
    assert {digits for *_, digits in codes} == {True}
    assert {one[:3] for one in codes if one[2] != 2} == {("integer", b, 1) for b in (2, 8, 14, 20)}
