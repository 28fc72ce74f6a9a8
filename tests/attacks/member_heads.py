"""adapted: member_heads, mh2, member_heads_honest_counts of the design → a session; two checks stop it.

Malicious member, beside an honest server: steers the next softmax point by its masked sums, and
reads rows of others out of the gradient at a point of its choice.

Shows: eve's sums outweigh those of the others, so the point after them is nearly hers; she subtracts
what she has sent from each total, cuts the tail of one feature until parts are one row, and has all
features of patients of others. With any numbers, or those that her rows could have; with steep and
flat scores.
Must hold: no row is read, for sums that no rows can have, and a point at which a member's own loss
is beyond what an honest head has, are refused. Without these two checks rows are read.
"""

from base import (
    FOUR,
    LOSS_BITS,
    AflError,
    Member,
    Search,
    Trial,
    compute,
    features,
    np,
    patients,
    premise,
    replace,
    run,
    stored,
)

from afltool.federation import session
from afltool.federation.masking import mask
from afltool.math.blas import unpack
from afltool.math.ridge import gram_matrix

BITS = 9
EVE, OTHERS = "west", ("east", "north", "south")


class Eve(Member):
    """Sends what leads to the point that it wants, as far as its rows allow it."""

    steep, honest = 5e4, False

    def gather(self, number):
        mine = super().gather(number)
        if number == 1:
            self.search, self.sent, self.target = Search(), {1: mine.arrays}, {}
            return mine
        before = self.total(number - 1)
        others = {k: a - self.sent[number - 1][k] for k, a in before.arrays.items()}
        if number == 2:
            n = self.total(1).rows - mine.rows
            self.search.begin(np.array(gram_matrix(others["gram"], 0)), others["cross"], n)
        elif number - 1 in self.target:
            self.search.learn(others["gradient"], self.target[number - 1])
        gradient, whole = self.towards(self.head(number), self.search.next * 2.0**-BITS)
        most = 100 * 2**39 if self.honest else 2**61
        ints = np.clip(np.round(gradient * 2.0 ** (BITS + LOSS_BITS)), -most, most).astype(np.int64)
        loss = np.array([int(1e5 * number * 2**LOSS_BITS)])
        self.sent[number] = {"gradient": ints, "loss": loss}
        if whole:
            self.target[number + 1] = self.search.next
        return replace(mine, arrays=self.sent[number])

    def protected(self, number):
        """Without the checks of an honest site."""
        x = self.layout(number).joined(self.gather(number))
        drawn = (self.folder / f"secrets-{number}").read_bytes()
        mask(x, self.me.name, drawn, self.offers(number), self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def towards(self, head, t):
        """Its own gradient sums that lead to weights of steep scores around a threshold."""
        V, rows, feature = head.point, self.total(1).rows, Search.FEATURE
        W = np.zeros(V.shape)
        W[feature, 0], W[-1, 0] = self.steep, -self.steep * t
        W[:, 0], W[:, 1] = W[:, 0] / 2, -W[:, 0] / 2
        L = np.tril(unpack(head.factor))
        B = L @ L.T
        mu = head._penalty(self.total(1))[:, None]
        base = V - np.linalg.solve(B, mu * V)
        W += (base.sum(1) / 2)[:, None]
        d = B @ (base - W)
        bound = 0.8 * 32 * rows if self.honest else np.inf
        share = min(1.0, bound / np.abs(d).max())
        g = share * d
        g[:, 1] = -g[:, 0]
        return g, share == 1.0


def play(at, rows, steep, honest):
    """Which rows of others eve knows, and why the session has stopped."""
    trial = Trial(at, rows, head="softmax", options={"rounds": 10}, max_rows=100)
    trial.serve()
    eve, refused = trial.member(EVE, kind=Eve), ""
    eve.steep, eve.honest = steep, honest
    try:
        trial.play()
    except AflError as error:
        refused = str(error)
    true = {tuple(map(int, row)) for n in OTHERS for row in stored(rows[n])[0]}
    known = eve.search.rows() & true if hasattr(eve.search, "cross") else set()
    print(f"steep {steep}, honest numbers: {honest}: {len(known)} rows known; {refused[:150]}")
    return known, refused


def main(at):
    x, y = patients(300)
    rows = {n: features(at / "rows", n, x[i::4], y[i::4], ["b", "m"]) for i, n in enumerate(FOUR)}
    ends = [play(at / f"{k}", rows, *how)
            for k, how in enumerate(((5e4, False), (300.0, True), (5e4, True)))]  # fmt: skip
    session.check_point = compute.invariants.check = lambda *_: None
    known, _ = play(at / "without", rows, 5e4, False)
    premise(len(known) >= 2, "without the checks rows are read")
    if any(known for known, _ in ends):
        return True, "a member reads rows of others out of sums under masks"
    stops = ("no honest head has", "cannot be the statistics")
    premise(all(any(s in said for s in stops) for _, said in ends), "a site stops: why?")
    return False, "such sums, or the points after them, are refused"


if __name__ == "__main__":
    run(main)
