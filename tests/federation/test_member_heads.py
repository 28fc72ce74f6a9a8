"""One member, beside an honest server, steers the next softmax point by its own masked sums and
reads others' rows out of the gradient. These ways of it are stopped; docs/privacy.md says that in
several rounds others may remain, and that sites which distrust each other take a head of one round,
or noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from parties import BITS, Federation

from afltool.errors import AflError, MismatchError
from afltool.federation import compute
from afltool.federation.masking import mask
from afltool.federation.session import Member
from afltool.math.blas import unpack
from afltool.math.ridge import gram_matrix
from afltool.math.softmax import BITS as LOSS_BITS

FEATURE, UNIT, ROUNDS = 3, 2.0**-BITS, 10
SLOW = pytest.mark.slow


def half(value):
    return float(np.floor(value)) + 0.5


class Search:
    """Thresholds of one feature, and the sums of the rows above each; see the audit's scripts."""

    def __init__(self):
        self.dead, self.trying, self.above, self.next, self.missed = set(), None, {}, None, 0

    def begin(self, gram, cross, n):
        self.cross, every = cross, cross.sum(1)
        self.one = int(every[-1]) // n
        self.above[-np.inf] = every
        mean = every[FEATURE] / n
        self.next = half(mean + 2.2 * np.sqrt(gram[FEATURE, FEATURE] / n - mean**2))

    def learn(self, gradient, threshold):
        found = gradient[:, 0].astype(object) + self.cross[:, 0].astype(object) * 2**LOSS_BITS
        if any(int(v) % 2**LOSS_BITS for v in found):
            self.missed += 1
            self.dead.add(self.trying)
        else:
            self.above[threshold] = np.array([int(v) // 2**LOSS_BITS for v in found])
        self.choose()

    def parts(self):
        at = sorted(self.above)
        for low, high in zip(at, [*at[1:], np.inf], strict=True):
            inside = self.above[low] - self.above.get(high, 0 * self.above[low])
            yield low, high, round(inside[-1] / self.one), inside

    def choose(self):
        several = [p for p in self.parts() if p[0] > -np.inf and p[2] > 1]
        for low, high, n, total in sorted(several, key=lambda p: p[0], reverse=True):
            cut, self.trying = half(total[FEATURE] / n), (low, high, n)
            if self.trying not in self.dead and low < cut < high:
                self.next = cut
                return
        body = next(p for p in self.parts() if p[0] == -np.inf)
        first = min((t for t in self.above if t > -np.inf), default=self.next)
        mean = body[3][FEATURE] / max(body[2], 1)
        self.trying = None
        self.next = half(first - (0.12 + 0.02 * self.missed) * (first - mean))


class Eve(Member):
    """Sends what leads to the point that it wants, as far as its rows allow it."""

    steep, honest = 5e4, False

    def gathered(self, number):
        mine = super().gathered(number)
        if number == 1:
            self.search, self.sent, self.target = Search(), {1: mine.arrays}, {}
            return mine
        head = self.head(number)
        others = {k: a - self.sent[number - 1][k]
                  for k, a in self.total(number - 1).arrays.items()}  # fmt: skip
        if number == 2:
            n = self.total(1).rows - mine.rows
            self.search.begin(np.array(gram_matrix(others["gram"], 0)), others["cross"], n)
        elif number - 1 in self.target:
            self.search.learn(others["gradient"], self.target[number - 1])
        gradient, whole = self.towards(head, self.search.next * UNIT)
        most = 100 * 2**39 if self.honest else 2**61
        ints = np.clip(np.round(gradient * 2.0 ** (BITS + LOSS_BITS)), -most, most).astype(np.int64)
        loss = np.array([int(1e5 * number * 2**LOSS_BITS)])
        self.sent[number] = {"gradient": ints, "loss": loss}
        if whole:
            self.target[number + 1] = self.search.next
        return replace(mine, arrays=self.sent[number])

    def protected(self, number):
        """Without the checks of an honest site."""
        x = self.layout(number).joined(self.gathered(number))
        drawn = (self.folder / f"secrets-{number}").read_bytes()
        mask(x, self.me.name, drawn, self.offers(number), self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def towards(self, head, t):
        """Its own gradient sums that lead to weights of steep scores around a threshold."""
        V, rows = head.point, self.total(1).rows
        W = np.zeros(V.shape)
        W[FEATURE, 0], W[-1, 0] = self.steep, -self.steep * t
        W[:, 0], W[:, 1] = W[:, 0] / 2, -W[:, 0] / 2
        L = np.tril(unpack(head.factor))
        B = L @ L.T
        mu = head._penalty(self.total(1), len(V))[:, None]
        base = V - np.linalg.solve(B, mu * V)
        W += (base.sum(1) / 2)[:, None]
        d = B @ (base - W)
        bound = 0.8 * 32 * rows if self.honest else np.inf
        share = min(1.0, bound / np.abs(d).max())
        g = share * d
        g[:, 1] = -g[:, 0]
        return g, share == 1.0


def federation(tmp_path, steep, honest):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 300)
    x = np.exp(0.5 * rng.normal(size=(300, 8)) + 0.4 * y[:, None])
    x = (x - x.mean(0)) / x.std(0)
    X = np.clip(np.round(x * 2**BITS), -32000, 32000).astype(np.int16)
    rows = {f"site-{k:02d}": (X[k::4], y[k::4]) for k in range(4)}
    f = Federation(tmp_path, ("softmax", {"rounds": ROUNDS}), n=4, rows=rows, classes=("b", "m"),
                   max_rows=100)  # fmt: skip
    f.sites["site-03"] = eve = f.new_site("site-03", kind=Eve)
    eve.steep, eve.honest = steep, honest
    return f


def found(f):
    eve, others = f.sites["site-03"], f.names[:3]
    true = {tuple(map(int, row)) for n in others for row in f.rows[n][0]}
    if not hasattr(eve, "search") or not hasattr(eve.search, "cross"):
        return set()
    return {tuple(int(v) for v in p[3][:-1]) for p in eve.search.parts() if p[2] == 1} & true


@pytest.mark.parametrize(
    ("steep", "honest"),
    [(5e4, False), (300.0, True), pytest.param(5e4, True, marks=SLOW)],
)
def test_member_chosen_heads(tmp_path, steep, honest):
    """With any counts, or those of its rows, and steep or flat scores: no row is read."""
    f = federation(tmp_path, steep, honest)
    stopped = ""
    try:
        f.run()
    except AflError as error:
        stopped = str(error)
    assert len(found(f)) == 0
    assert "no honest head has" in stopped or "cannot be the statistics" in stopped


@SLOW
def test_the_attack_works_without_the_checks(tmp_path, monkeypatch):
    """So the test above tells something."""
    from afltool.federation import session

    monkeypatch.setattr(session, "check_point", lambda *args: None)
    monkeypatch.setattr(compute.conditions, "check", lambda total: None)
    f = federation(tmp_path, 5e4, False)
    assert f.over()
    assert len(found(f)) >= 2


def test_a_site_refuses_a_point_that_no_honest_head_has(tmp_path):
    f = federation(tmp_path, 0.0, True)
    own = f.gathered("site-00")
    honest, chosen = (
        replace(own, arrays={"loss": np.array([int(loss * np.log(2) * 2**LOSS_BITS)])})
        for loss in (300, 301 * 2)
    )
    compute.check_point(honest, 300, 2)
    with pytest.raises(MismatchError, match="no honest head has"):
        compute.check_point(chosen, 300, 2)


@pytest.mark.parametrize("alpha", [0.05, pytest.param(1.0, marks=SLOW)])
def test_an_honest_session_of_very_different_sites_is_not_refused(tmp_path, alpha):
    """Each site has nearly one class alone: its own loss may be far above ln C a row."""
    rng = np.random.default_rng(4)
    rows = {}
    for k in range(4):
        p = rng.dirichlet(np.full(3, alpha))
        y = rng.choice(3, 40, p=p)
        X = (rng.normal(size=(40, 6)) * 900 + 1500 * np.eye(3, 6)[y]).astype(np.int16)
        rows[f"site-{k:02d}"] = X, y
    f = Federation(tmp_path, ("softmax", {"rounds": 3, "penalty": 1e-5}), n=4, rows=rows)
    assert f.over()
    assert f.is_pooled()
