"""SAFLe in the paper's own shape, the memory that it takes, and how dense its sums are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import carried_out
from rounds_of_heads import report_of
from test_safle import CLASSES, DIM, explicit, made, rows, solved

import afltool
from afltool.errors import UsageError
from afltool.heads import OPTIONS, make_head
from afltool.math.codes import one_hot
from afltool.math.counts import density
from afltool.plans.layout import RunFolder


@pytest.mark.parametrize("dim", [5, 40, 512])
def test_the_papers_shape_uses_every_digit_once_in_one_round(dim):
    head = make_head("safle", {"preset": "paper"}).bind(dim, 4)
    o = head.options
    assert (o.size, o.digits_of_code, o.buckets, o.bucketing) == (32, 5, 8, "overlap")
    dealt = head._dealt()
    assert dealt.shape == (-(-8 * dim // 5), 5)
    assert sorted(dealt.ravel()[: 8 * dim]) == list(range(8 * dim))  # the last code is filled up
    assert head.one_round
    assert head.phase() == "codes"


@pytest.mark.parametrize(
    ("bucketing", "buckets", "size"),
    [("onehot", 20, 32), ("integer", 2, 32), ("integer", 3, 27), ("integer", 8, 8),
     ("integer", 40, 40)],
)  # fmt: skip
def test_tables_have_32_rows_or_the_next_smaller_power(bucketing, buckets, size):
    o = OPTIONS["safle"](preset="paper", bucketing=bucketing, buckets=buckets)
    assert o.size == size


def test_a_preset_is_its_values_and_given_ones_come_first():
    preset = OPTIONS["safle"](preset="paper")
    told = OPTIONS["safle"](every_digit=True, group_size=5, thresholds="range:0:2", ridge=0)
    assert preset == told
    assert preset.as_dict() == told.as_dict()
    changed = OPTIONS["safle"](preset="paper", thresholds="federated", group_size=6, experts=9)
    assert (changed.thresholds, changed.size, changed.experts) == ("federated", 64, 9)
    assert not changed.every_digit
    with pytest.raises(UsageError, match=r"--every-digit is not used with --experts"):
        OPTIONS["safle"](every_digit=True, experts=9)


def test_files_of_before_say_what_they_said():
    assert OPTIONS["safle"]().as_dict() == {
        "bucketing": "overlap", "buckets": 8, "group_size": 3, "experts": None,
        "thresholds": "federated", "with_linear": False, "ridge": "auto", "linear_ridge": 1.0,
        "seed": 0, "gamma": 0.0,
    }  # fmt: skip


def test_a_run_that_cannot_be_solved_reads_no_row(road, tmp_path, cli, free_memory):
    words = [
        "run", "--train-features", road.train, "--test-features", road.test, "--partition",
        road.clients, "--head", "safle", "--preset", "paper", "-o", tmp_path / "RUN",
    ]  # fmt: skip
    free_memory(10**6)
    done = cli(*words)
    assert done.exit_code == 5
    assert "416 columns" in done.stderr  # 8 features, 64 digits, 13 codes
    assert not list((tmp_path / "RUN").glob("04-*"))
    free_memory(10**9)
    done = cli(*words)
    assert done.exit_code == 0, done.stderr
    summary = json.loads((tmp_path / "RUN" / "summary.json").read_text())
    assert len(summary["bytes_per_client"]) == 1
    assert summary["options"]["every_digit"] is True


@pytest.mark.parametrize("options", [{}, {"bucketing": "onehot", "group_size": 2}])
@pytest.mark.parametrize("n", [1, 9, 300])
def test_the_density_is_that_of_the_dense_matrix(options, n):
    X, y = rows(n)
    head = solved(X, y, **options)
    phi = explicit(head, X)
    assert np.array_equal(one_hot(head.coder().codes(X), head.options.size), phi)
    share = np.count_nonzero(phi.T @ phi) / head.options.columns_for(head.dim) ** 2
    assert report_of(head)["density"] == pytest.approx(share)
    if n == 1:
        assert share == pytest.approx(1 / head.options.size**2)
    assert report_of(head)["density"] == density(**_counts(made(**options), X, y))


def _counts(head, X, y):
    found, _ = head.gather([(X, y)])
    assert (head.dim, head.classes) == (DIM, CLASSES)
    return {name: found.arrays[name] for name in ("labels", "pairs")}


def test_a_study_shows_density_bytes_and_rounds(road, tmp_path):
    from afltool import table
    from afltool.papers.description import read
    from afltool.papers.frames import figures

    (tmp_path / "dense.toml").write_text(f'''
train-features = "{road.train}"
test-features = "{road.test}"
clients = 3
head = "safle"
thresholds = "range:-4:4"
keep-clients = true
[study]
rows = "experts,group_size"
value = "density,file_bytes,exchanges"
[[table]]
experts = 16
group-size = 2
[[table]]
experts = 4
group-size = 4
''')
    root = carried_out(read(tmp_path / "dense.toml"), tmp_path / "S")
    made = table(root)
    shown = made.numbers.to_numpy().tolist()
    assert shown[0][0] > shown[1][0] > 0  # small tables are dense
    found = sorted(root.rglob("summary.json"))
    assert len(found) == len(shown) == 2
    for summary in found:
        own = figures(json.loads(summary.read_text()))
        assert own["exchanges"] == 1
        assert [own["density"], own["file_bytes"], 1] in shown
        files = sorted(RunFolder(summary.parent).stats(1).glob("*.h5"))
        assert own["file_bytes"] == round(sum(p.stat().st_size for p in files) / 3)
        assert 0 < afltool.info(files[0])["density"] <= own["density"]
