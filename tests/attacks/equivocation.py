"""adapted: brute, isolate, iso7 of the design → the closes of a session, and `seen` before any answer.

Malicious server, with members who work with it: wants more than one sum of a round, or one of few.

Shows: the server closes rounds 0 and 1 with other members for each honest one, so that each answers
for another sum, and s of some is opened besides b of others: at four points of the plane of n, t
and colluding members, where one answer a round would not be enough. Who colludes says to each that
it has seen the same. Then two members of seven are told of each other's absence, again and again.
Must hold: masks cancel between those alone who were told the same; nobody gives shares before t
have seen one close, after a start of its process neither; of a round one sum at most is opened.
"""

from itertools import combinations

from base import canonical, hashlib, name_of, premise, run
from parties import Federation


class Liar:
    """A server that closes rounds 0 and 1 with other members for each of the honest ones."""

    def __init__(self, f, colluders=()):
        self.f, self.colluders = f, colluders
        f.turn("server", *f.names)
        self.of = {0: {n: f.counted("hello", 0, n) for n in f.names}, 1: {}}

    def close(self, number, names, before):
        members = {n: self.of[number][n] for n in names}
        said = canonical({"before": before, "members": members})
        return hashlib.sha256(self.f.put("close", number, "server", said)).hexdigest()

    def first(self, name, names):
        """Round 0, for one member; returns the digest of its close."""
        digest = self.close(0, names, "")
        self.f.turn(name)
        self.of[1][name] = self.f.counted("sums", 1, name)
        return digest

    def second(self, name, names, before):
        """Round 1: who colludes says that it has seen the same, to each."""
        seen = bytes.fromhex(self.close(1, names, before))
        for other in self.colluders:
            self.f.put("seen", 1, other, seen)
        self.f.turn(name)
        for other in self.colluders:
            self.f.at("seen", 1, other).unlink()
            (self.f.root / name / "taken" / name_of("seen", 1, other)).unlink(missing_ok=True)


def but(out, members, also=()):
    """Each of these members is told that the others of ``out`` dropped out."""
    return {w: [*(v for v in out if v != w), *also] for w in members}


def least(n, t, c):
    """How few honest members' sum opens at the least where one answer a round is given at once.

    k of them are told one thing, q of them are said to be gone, r are told otherwise. Whoever names
    one as gone gives no share of its b, and each of q needs t − c namings: a maximal flow.
    """
    m, f, need = n - c, n - t, t - c
    for k in range(1, m + 1):
        for q in range(m - k + 1):
            r, cap = m - k - q, k + q + c - t
            flows = (s * need <= k * min(cap, s) + s * min(f, s - 1) + (q - s + r) * min(f, s)
                     for s in range(1, q + 1))  # fmt: skip
            if cap >= 0 and k + q >= need and all(flows):
                return k
    return None


def rule(n, t, c):
    """That one answer suffices, in short: more honest members than f (f + 1)."""
    return n - c > (n - t) * (n - t + 1)


# n, t, targets, whose s shall be opened, who colludes, and who is told that whom dropped out
POINTS = [
    (5, 3, [0], [1, 2], [], but([1, 2], [1, 2, 3, 4])),
    (7, 4, [0, 1], [2, 3, 4], [], but([2, 3, 4], range(2, 7))),
    (7, 5, [0], [1, 2], [5, 6], but([1, 2], [1, 2, 3, 4])),
    (12, 9, [0], [1, 2, 3, 4], [8, 9, 10, 11],
     {**but([1, 2, 3, 4], [1, 2, 3, 4]), 5: [1, 2, 3], 6: [2, 3, 4], 7: [3, 4, 1]}),
]  # fmt: skip


def isolated(at, n, t, targets, q, colluders, told):
    """What is given away, or cancels where it should not."""
    f = Federation(at, n=n, threshold=t)
    liar = Liar(f, [f.names[k] for k in colluders])
    views, closes, broken = {}, {}, []
    for k, name in enumerate(f.names):
        inside = [*targets[:1], *q, *colluders] if k in targets else range(n)
        views[name] = sorted({*(f.names[i] for i in inside), name})
        closes[name] = liar.first(name, views[name])
    salts = {name: f.sites[name].salt(1) for name in f.names}
    for a, b in combinations(f.names, 2):
        if (salts[a] == salts[b]) != (closes[a] == closes[b]):
            broken.append(f"masks of {a} and {b}")
    for k, name in enumerate(f.names):
        if k not in colluders:
            inside = [v for v in views[name] if f.names.index(v) not in told.get(k, [])]
            liar.second(name, inside, closes[name])
    waits = f.sites[f.names[0]].turn(), f.new_site(f.names[0]).turn()
    print(f"n = {n}, t = {t}, {len(colluders)} collude: {waits[0]}"[:200])
    premise(f.sent("001-sums*"), "sums were sent")
    broken += [one for one in waits if "to have seen who is in round 1" not in one]
    return broken + f.sent("001-shares*")


def two_sums(at):
    """Of how many sums of a round members give shares."""
    f = Federation(at, n=7, threshold=4)
    liar = Liar(f)
    closes = {name: liar.first(name, f.names) for name in f.names}
    for _ in range(3):
        for k, name in enumerate(f.names):
            inside = [n for n in f.names if n != f.names[6 if k < 4 else 0]]
            if name in inside:
                liar.second(name, inside, closes[name])
    answered = [name.removeprefix("001-shares-") for name in f.sent("001-shares*")]
    print("told of each other's absence; answers of", answered)
    return len({canonical(f.sites[n].get_close(1)) for n in answered})


def main(at):
    plane = [(n, t, c) for n in range(3, 10) for c in range(n // 2) for t in range(c + 2, n + 1)
             if 2 * t > n + c]  # fmt: skip
    premise(all((least(*p) >= p[1] - p[2]) == rule(*p) for p in plane), "the rule is that of flows")
    points = [(n, t, len(colluders)) for n, t, _, _, colluders, _ in POINTS]
    premise(not any(map(rule, *zip(*points, strict=True))), "at these points one answer is too few")
    broken = [b for k, point in enumerate(POINTS) for b in isolated(at / f"{k}", *point)]
    if two_sums(at / "two") > 1:
        broken.append("two sums of one round are opened")
    if broken:
        return True, f"a server that tells members different things learns more: {broken}"
    return False, f"{len(POINTS)} ways to isolate a member open nothing, and of a round one sum"


if __name__ == "__main__":
    run(main)
