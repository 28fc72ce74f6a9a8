"""What a client of SAFLe sends takes hardly more bytes than when files had bitmaps (0.3)."""

from __future__ import annotations

import numpy as np
import pytest

import afltool

# Mean bytes of these clients' files as 0.3 wrote them, arrays sparse where that was smaller; and
# how much more is allowed: without bitmaps the writer and its reader have half as many forms.
BEFORE = {8: (202_723, 1.03), 32: (1_015_647, 1.16)}


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """Features like those behind a ReLU, 500 rows a client, dealt by Dirichlet(0.1)."""
    at = tmp_path_factory.mktemp("uploads")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 6000)
    x = np.maximum(rng.normal(size=(6000, 64)) + 0.7 * rng.normal(size=(10, 64))[y], 0)
    np.savez(at / "x.npz", x=x, y=y)
    rows = afltool.import_embeddings(at / "x.npz", at / "x.h5")
    return rows, afltool.partition(rows, at / "c.h5", alpha=0.1, clients=12)


@pytest.mark.parametrize("size", BEFORE)
def test_the_mean_upload_stays_small(size, dealt, tmp_path):
    rows, clients = dealt
    group = size.bit_length() - 1
    options = {"thresholds": str(rows), "experts": 128, "group_size": group}
    head = afltool.head("safle", tmp_path / "h.h5", head_options=options)
    stats = afltool.local_stats(rows, head, tmp_path / "stats", partition=clients)
    found = np.mean([path.stat().st_size for path in stats.iterdir()])
    before, most = BEFORE[size]
    assert found <= most * before
