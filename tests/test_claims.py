"""The page of the papers' claims: complete, its figures stand where it says, its tests exist."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

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
NUMBER = re.compile(r"(?<![\w.^⁻-])\d[\d,.]*\d|(?<![\w.^⁻-])\d")


def places(paper):
    return {place for one in CLAIMS if one["paper"] == paper for place in one["place"]}


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(TOLD), "python docs/make_claims.py makes it"


def test_every_table_figure_theorem_and_shipped_study_has_a_claim():
    lost = {paper: set(of) - places(paper) for paper, of in CONTENTS.items()}
    assert not any(lost.values()), lost
    for name in papers():
        paper, _, table = name.rpartition("-")
        assert f"table {table}" in places(paper), name
    assert not set(shipped_names()) - {by for one in CLAIMS for by in one["by"]}
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


def test_our_figures_stand_in_the_files_that_are_named():
    """A figure with a point is a measured one; it stands in a named file as it is written."""
    told = [(one["ours"], one) for one in CLAIMS]
    for text, one in told + [(one["changes"], one) for one in TOLD["deviation"]]:
        files = [(ROOT / file).read_text("utf-8") for file in one.get("from", [])]
        there = {n for file in files for n in NUMBER.findall(file)}
        assert not {n for n in NUMBER.findall(text) if "." in n} - there, text


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


def test_studies_have_what_their_tables_have():
    for number in (*range(9, 24), 30):  # the ridges of their printed figures
        deep = settings(f"deepafl-table{number}", "head", "ridge", "block_ridge")
        assert deep - {("linear", 0, None)} == {("deepafl", 1, 0.1)}, number
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
