"""new: two sessions of the same rows at once.

Malicious servers, or one: begin two sessions, with and without cleo, and let both come as far as
they can before either is opened.

Shows: four sites are in one session, three of them in another one, which each site has approved;
their turns are interleaved at every step, over masks and with sums that the server reads. Were
both opened, the difference would be the gram of cleo.
Must hold: of both sessions one is opened at most; who has opened its rows in one refuses the other.
"""

from itertools import product

from base import Trial, of_sites, outcome, premise, run

NAMES, STAY = ("anna", "bert", "cleo", "dora"), ("anna", "bert", "dora")


def main(at):
    both = []
    for protection, first in product(("masked", "signed"), (0, 1)):
        here = at / f"{protection}-{first}"
        rows = of_sites(here / "rows", NAMES, n=30, d=5)
        one = Trial(here, rows, place="one", protection=protection)
        two = Trial(here, rows, place="two", names=STAY, protection=protection, threshold=3)
        ends = {}
        for _ in range(10):
            for trial in (one, two) if first == 0 else (two, one):
                for name in ("office", *trial.names):
                    turn = trial.serve if name == "office" else (lambda t=trial, n=name: t.join(n))
                    kind, said = outcome(turn)
                    if kind != "waits":
                        ends[trial.place.name, name] = said
                    premise(kind != "crash", said)
        opened = [t.place.name for t in (one, two) if (t.office / "total-1.h5").exists()]
        print(
            f"{protection}: opened {opened}; refused at {sorted(ends)}: {list(ends.values())[:1]}"[
                :330
            ]
        )
        premise(ends, "somebody refuses")
        if len(opened) > 1:
            both.append(protection)
    if both:
        return True, f"two sums with and without cleo are opened: {both}"
    return False, "one of two sessions is opened, the other is refused"


if __name__ == "__main__":
    run(main)
