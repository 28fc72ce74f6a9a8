"""adapted: the class courier.Server → federation Server with another `solve`; --check-sums → always.

Malicious server: reads rows out of sums under masks by the heads that it publishes.

Shows: a softmax session of three sites under masks (all have to stay), 20 rounds of gradients. The
server publishes points V of its own choice: x_j above a threshold belongs to one class, with
certainty. The masked sum of gradients is then the sum of these rows. It finds the tail of one
feature and cuts it until every part is one row: exact features of patients.
Must hold: a member solves each total itself and stops when the next head is another one.
"""

from base import (
    AflError,
    Search,
    Server,
    Trial,
    features,
    np,
    patients,
    premise,
    replace,
    run,
    stored,
    triangle,
)

NAMES, ROUNDS = ("north", "south", "west"), 20


class Chooser(Server):
    """The server of the program, but for the points of the heads that it publishes."""

    def solve(self, number, total):
        head, search = super().solve(number, total), self.search
        if number == 1:
            search.unit = 2.0 ** -total.context.space["fraction_bits"]
            search.begin(triangle(total.arrays["gram"]), total.arrays["cross"], total.rows)
        else:
            search.learn(total.arrays["gradient"], search.next)
        if head.phase() is None:
            return head
        # Steep enough for probabilities of 0 and 1, and not so that the losses are too large.
        t, V = search.next * search.unit, np.zeros(head.point.shape)
        V[search.FEATURE, 0] = 50000.0 / (abs(t) + 1.0)
        V[-1, 0] = -V[search.FEATURE, 0] * t
        return replace(head, point=V)


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
    got = search.rows() & true if search.above else set()
    print(f"{len(search.above) - 1} thresholds on feature {search.FEATURE}; rows above them: "
          f"{[p[2] for p in search.parts()] if search.above else []}")  # fmt: skip
    print(f"{len(got)} of {len(true)} patients known exactly, all {x.shape[1]} features, to the "
          "last bit")  # fmt: skip
    for row in sorted(got)[:2]:
        print("   such as", [round(v * search.unit, 3) for v in row])
    if refused:
        print("a site stopped:", refused[:300])
    if got:
        return True, f"{len(got)} patients read out of sums under masks"
    premise(search.above, "the server has chosen a head")
    premise("head is not the solution" in refused, f"a site stops because of the head: {refused}")
    return False, f"a site refused the head of the server: {refused[:120]}"


if __name__ == "__main__":
    run(main)
