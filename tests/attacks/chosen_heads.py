"""adapted: the class courier.Server → federation Server with another `solve`; --check-sums → always.

Malicious server: reads rows out of sums under masks by the heads that it publishes.

Shows: a softmax session of three sites under masks (all have to stay), 20 rounds of gradients. The
server publishes points V of its own choice: x_j above a threshold belongs to one class, with
certainty. The masked sum of gradients is then the sum of these rows. It finds the tail of one
feature and cuts it until every part is one row: exact features of patients.
Must hold: a member solves each total itself and stops when the next head is another one.
"""

from base import AflError, Server, Trial, features, np, premise, replace, run, stored, triangle

from afltool.math.softmax import BITS

NAMES, ROUNDS, FEATURE = ("north", "south", "west"), 20, 3


def patients():
    """569 rows of skewed measurements, as those of tumors are."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 569)
    x = np.exp(0.5 * rng.normal(size=(569, 8)) + 0.4 * y[:, None])
    return (x - x.mean(0)) / x.std(0), y


class Search:
    """Thresholds t on one feature, and the sums over the rows above each."""

    def __init__(self):
        self.dead, self.trying = set(), None
        self.bits = self.cross = self.scale_one = None
        self.above, self.next, self.unit, self.missed = {}, None, None, 0

    def begin(self, total):
        """From the sums of the first round: all rows, Σx and mean and spread of the feature."""
        self.bits = total.context.space["fraction_bits"]
        self.unit = 2.0**-self.bits
        self.cross = total.arrays["cross"].astype(np.int64)
        everything, G = self.cross.sum(axis=1), triangle(total.arrays["gram"])
        n = total.rows
        self.scale_one = int(everything[-1]) // n  # the constant feature, in its units
        self.above[-np.inf] = everything
        mean = everything[FEATURE] / n
        spread = np.sqrt(G[FEATURE, FEATURE] / n - mean**2)
        self.next = self.half(mean + 2.2 * spread)

    @staticmethod
    def half(value):
        """Between two steps of a feature, so that no row is at the threshold."""
        return float(np.floor(value)) + 0.5

    def point(self, shape):
        """V for which class 0 has the rows above the threshold."""
        t = self.next * self.unit
        # Steep enough for probabilities of 0 and 1, and not so that the losses are too large.
        V, steep = np.zeros(shape), 50000.0 / (abs(t) + 1.0)
        V[FEATURE, 0] = steep
        V[-1, 0] = -steep * t
        return V

    def learn(self, total):
        """The sum over the rows above the threshold, from the gradient there."""
        gradient = total.arrays["gradient"].astype(object)
        found = gradient[:, 0] + self.cross[:, 0].astype(object) * 2**BITS
        if any(int(v) % 2**BITS for v in found):  # a row lies so near that it is between 0 and 1
            self.missed += 1
            self.dead.add(self.trying)
        else:
            self.above[self.next] = np.array([int(v) // 2**BITS for v in found], dtype=np.int64)
        self.choose()

    def parts(self):
        """Intervals of the feature: from, to, number of rows, their sum."""
        at = sorted(self.above)
        for low, high in zip(at, [*at[1:], np.inf], strict=True):
            inside = self.above[low] - self.above.get(high, 0 * self.above[low])
            yield low, high, round(inside[-1] / self.scale_one), inside

    def choose(self):
        """Cut a part of the tail at its mean, so that both halves have rows; or take more rows."""
        tail = [p for p in self.parts() if p[0] > -np.inf and p[2] > 1]
        for low, high, n, total in sorted(tail, key=lambda p: p[0], reverse=True):
            cut = self.half(total[FEATURE] / n)
            self.trying = low, high, n
            if self.trying not in self.dead and low < cut < high:
                self.next = cut
                return
        body = next(p for p in self.parts() if p[0] == -np.inf)
        first, mean = min(t for t in self.above if t > -np.inf), body[3][FEATURE] / body[2]
        self.trying = None
        self.next = self.half(first - (0.12 + 0.02 * self.missed) * (first - mean))

    def rows(self):
        return [inside[:-1] for low, _, n, inside in self.parts() if n == 1]


class Chooser(Server):
    """The server of the program, but for the points of the heads that it publishes."""

    def solve(self, number, total):
        head, search = super().solve(number, total), self.search
        search.begin(total) if number == 1 else search.learn(total)
        if head.phase() is None:
            return head
        point = search.point(head.point.shape)
        return replace(head, point=point)


def main(at):
    x, y = patients()
    rows = {n: features(at / "rows", n, x[i::3], y[i::3], ["b", "m"]) for i, n in enumerate(NAMES)}
    trial = Trial(at, rows, head="softmax", options={"rounds": ROUNDS})
    honest = trial.server
    server = Chooser(honest.place, honest.folder, trial.agreed, honest.me)
    server.search = search = Search()
    trial.parties["office"] = server
    refused = ""
    try:
        trial.play()
    except AflError as error:
        refused = str(error)
    true = {tuple(int(v) for v in row) for path in rows.values() for row in stored(path)[0]}
    got = {tuple(int(v) for v in row) for row in search.rows()} & true if search.above else set()
    print(f"{len(search.above) - 1 if search.above else 0} thresholds on feature {FEATURE}; "
          f"rows above them: {[p[2] for p in search.parts()] if search.unit else []}")  # fmt: skip
    print(f"{len(got)} of {len(true)} patients known exactly, all {x.shape[1]} features, to the "
          "last bit")  # fmt: skip
    for row in sorted(got)[:2]:
        print("   such as", [round(v * search.unit, 3) for v in row])
    if refused:
        print("a site stopped:", refused[:300])
    if got:
        return True, f"{len(got)} patients read out of sums under masks"
    premise(search.unit, "the server has chosen a head")
    premise("head is not the solution" in refused, f"a site stops because of the head: {refused}")
    return False, f"a site refused the head of the server: {refused[:120]}"


if __name__ == "__main__":
    run(main)
