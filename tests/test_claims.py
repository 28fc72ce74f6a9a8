"""The page of the papers' claims: complete, its figures stand where it says, its tests exist."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from afltool.lab.studies.options import FIGURES
from afltool.lab.studies.published import load_published, options_in, papers
from afltool.lab.studies.spec import find, list_shipped

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from make_claims import DATA, PAGE, PAPERS, VERDICTS, page  # noqa: E402  (docs is no package)

TOLD = tomllib.loads(DATA.read_text("utf-8"))
CLAIMS = TOLD["claim"]
#: How many tables, figures, theorems and lemmas each paper has; its other tables have letters.
CONTENTS = {
    "afl": {"table": 4, "figure": 3, "theorem": 2, "lemma": 1},
    "afl-v1": {"table": 4, "figure": 2},
    "deepafl": {"table": 31, "figure": 16, "theorem": 3, "lemma": 2},
    "safle": {"table": 3, "figure": 6, "theorem": 1, "lemma": 1},
}
NUMBER = re.compile(r"(?<![\w.^⁻-])\d[\d,.]*\d|(?<![\w.^⁻-])\d")


def places(paper):
    return {place for one in CLAIMS if one["paper"] == paper for place in one["place"]}


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(TOLD), "python docs/make_claims.py makes it"


def test_every_table_figure_theorem_and_shipped_study_has_a_claim():
    for paper, parts in CONTENTS.items():
        wanted = {f"{part} {n + 1}" for part, many in parts.items() for n in range(many)}
        assert not wanted - places(paper), paper
    for name in papers():
        paper, _, table = name.rpartition("-")
        assert {"text": "section 4.2"}.get(table, f"table {table}") in places(paper), name
    named = {by for one in CLAIMS for by in one["by"]}
    assert not set(list_shipped()) - named
    assert {one["paper"] for one in CLAIMS} == set(PAPERS)
    assert {one["verdict"] for one in CLAIMS} == set(VERDICTS)


def test_what_checks_a_claim_exists():
    known = set(list_shipped())
    told = (*CLAIMS, *TOLD["deviation"], *TOLD["reference"])
    for by in (by for one in told for by in one.get("by", [])):
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
    of, wrong = {}, []
    for paper in PAPERS:
        tables = [load_published(name) for name in papers() if name.startswith(paper.split("-")[0])]
        values = [v for one in tables for v in one.filter(list(FIGURES)).stack()]
        of[paper] = {f"{v * f:.2f}" for v in values for f in (100, 1)}
    for one in CLAIMS:
        tables = {f"{one['paper']}-{place.removeprefix('table ')}" for place in one["place"]}
        tables |= {f"{one['paper']}-text"} if "section 4.2" in one["place"] else set()
        if tables & set(papers()):
            plain = re.sub(r"\S+e-?\d+|α = \S+|\(0\.\d+\)|± \S+", "", one.get("published", ""))
            found = {n for n in NUMBER.findall(plain) if re.fullmatch(r"\d+\.\d\d", n)}
            wrong += [(n, one["says"]) for n in sorted(found - of[one["paper"]])]
    assert not wrong


def test_improvements_of_deepafl_are_significant_by_the_published_accuracies():
    """χ² of 2×2 counts of 10,000 test rows: T = 20 against the best other method, in 12 columns."""
    both = pd.concat([load_published("deepafl-1"), load_published("deepafl-2")])
    by = ["data", "alpha", "shards_per_client"]
    columns = both.groupby(by, dropna=False)
    assert len(columns) == 12
    for _, one in columns:
        pair = one[one["layers"] == 20]["top1"].item(), one[one["head"] != "DeepAFL"]["top1"].max()
        assert pair[0] > pair[1]
        assert p_of(*pair) < 1e-17
    assert [round(p_of(0.8705, other), 4) for other in (0.8550, 0.8581)] == [0.0016, 0.0111]


def p_of(*top1):
    right = np.rint(np.array(top1, float) * 10_000)
    return chi2_contingency([right, 10_000 - right]).pvalue


def test_bytes_of_deepafl_and_fedavg_by_arithmetic():
    """T = 20, widths 1,024; FedAvg 500 rounds of 512 features and a bias; 4-byte numbers, in MB."""
    d, rounds = 1024, 41
    for classes, figures in (
        (100, "102.9 102.6 195.3 119.7 205.2"),
        (200, "119.7 205.2 153.2 410.4"),
    ):
        sent = rounds * (d * (d + 1) // 2 + d * classes)
        fedavg = 500 * (512 + 1) * classes
        dense, thin = 21 * d * classes + 20 * d * d, rounds * d * classes
        found = [4e-6 * n for n in (sent, fedavg, sent + dense, sent + thin, 2 * fedavg)]
        assert set(figures.split()) <= {f"{mb:.1f}" for mb in found}
        text = (ROOT / "docs" / "decisions" / "bytes.md").read_text("utf-8")
        assert set(figures.split()) <= set(NUMBER.findall(text))


def test_the_two_versions_of_afl_differ_in_fourteen_cells():
    """The seven rivals at α = 0.1 on CIFAR-100 and Tiny-ImageNet; each ± is the same in both."""
    first, later = (load_published(name) for name in ("afl-v1-2", "afl-1"))
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
