"""adapted: local-stats --dp-delta is gone → `session new`; noise.Bits → the words of its random bytes.

Reader of noisy sums: excludes a neighbor for certain more often than δ allows.

Shows: a δ below what the tails of float64 can give must not be accepted. Noise is made of uniform
numbers of 52 bits, so it ends: behind its largest value nothing is ever drawn. That value over a
count of c + 1 cannot come from the neighbor with c, so δ is at least its probability. The noise is
drawn by the program's own function from chosen words.
Must hold: a δ that the sampler cannot keep is refused, by the function and by the command.
"""

import math

from base import Trial, afl, np, of_sites, outcome, premise, run

from afltool.federation import noise

REFUSED = ((4.0, 1e-20), (1.0, 1e-60), (0.5, 1e-200), (1.0, 9.9e-13), (1.0, 0.0))


class Words:
    """A stream of chosen words: a size, no sign, the least chance that is still kept."""

    def __init__(self, size):
        self.values = iter((size, 2**64 - 1, 0))

    def token_bytes(self, size):
        return np.full(size // 8, next(self.values), "<u8").tobytes()


def largest(sigma):
    """The largest number that one draw of ≤ 16 σ gives, and log2 of a bound below its chance."""
    kept, low, high = None, 0, 2**52  # the upper 52 bits of a word: fewer make a larger number
    real = noise.secrets
    while low < high:
        middle = (low + high) // 2
        noise.secrets = Words(middle << 12)
        try:
            found = int(noise._draw(1, sigma)[0])
            kept, high = (found, middle), middle
        except StopIteration:  # not kept: the next try would need other words
            low = middle + 1
        finally:
            noise.secrets = real
    top, word = kept
    return top, math.log2((word + 1) * 2.0**-52) - 1 - 52


def main(at):
    rows = of_sites(at / "rows", n=40)
    accepted = []
    budget = {"clip": 0.25, "colluding": 0}
    for epsilon, delta in REFUSED:
        kind, said = outcome(lambda e=epsilon, d=delta: Trial(
            at / "no", rows, noise={**budget, "epsilon": e, "delta": d}))  # fmt: skip
        print(f"ε = {epsilon}, δ = {delta}: {kind}: {said if kind == 'stops' else ''}"[:140])
        if kind != "stops":
            accepted.append(delta)
    trial = Trial(at / "yes", rows, noise={**budget, "epsilon": 1.0, "delta": noise_least()})
    words = ("session", "new", "--members", trial.keys, "--server", trial.keys / "office.pub",
             "--data", rows["north"], "--dp-epsilon", 1.0, "--clip", 0.25, "-o", at / "session",
             "--dp-delta")  # fmt: skip
    done = afl(*words, 1e-20, ok=False)
    print("session new --dp-delta 1e-20 ended with", done.returncode, done.said.strip()[-90:])
    if done.returncode != 2:
        accepted.append("by the command")

    made = noise.Noise.of(trial.agreed, _layout(trial))
    delta = trial.agreed.noise.delta
    for sigma in (2.0, 3.0, 16.0, *made.sigma.values()):
        one = min(sigma, noise.ONE_DRAW) if sigma <= noise.ONE_DRAW else noise.ONE_DRAW
        top, log2 = largest(one)
        premise(top > 4 * one, f"the largest draw of σ = {one} is found: {top}")
        bad = 2.0**log2 > delta
        print(f"   σ = {sigma:.4g} (draws of {one:.4g}): no draw is above {top} ({top / one:.2f} σ), "
              f"P ≥ 2^{log2:.0f} {'>' if bad else '≤'} δ = {delta:g}")  # fmt: skip
        if bad:
            accepted.append(f"σ = {sigma}")
    if accepted:
        return True, f"δ is accepted, less than the tails give: {accepted}"
    return False, "a δ that the tails of the noise cannot give is refused"


def noise_least():
    from afltool.federation.agreement import LEAST_DELTA

    return LEAST_DELTA


def _layout(trial):
    from base import compute

    from afltool.federation.compute import Layout

    return Layout.of(trial.agreed, compute.first_head(trial.agreed), first=True)


if __name__ == "__main__":
    run(main)
