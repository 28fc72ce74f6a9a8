"""adapted: 16 digits of SHA-256 → the code: 32 digits of scrypt, which costs 128 MiB a guess.

Malicious server: two sessions with one approved code, found offline.

Shows: what sites approve is computed from terms that the server chooses (the random number of the
session, its own keys, the members). So it looks for two sessions, one as agreed and one in which
the others are its own, that begin alike: by the birthday bound. Here a real collision on few
digits, by the program's own code, what all of them cost, and which lengths are taken.
Must hold: at least 32 digits are asked for. A malformed one is called so.
"""

import secrets
from math import pi, sqrt

from base import AflError, Trial, afl, commands, keys, np, of_sites, premise, replace, run, time

DIGITS = 1  # of the collision that is really found
AVERAGE = 0.05  # seconds; faster would be no slow hash


def main(at):
    trial = Trial(at, of_sites(at / "rows"))
    trial.serve()
    agreed = trial.agreed
    for name in ("south", "west"):  # the server's own, under the names of members
        keys.new(name, at / "own")
    own = [keys.load_public(at / "own" / f"{name}.pub") for name in ("south", "west")]
    north = next(p for p in agreed.members if p.name == "north")
    bad = replace(agreed, members=tuple(sorted([north, *own])))

    begun, seen, tried, pair = time.process_time(), ({}, {}), 0, None
    while pair is None:
        for which, terms in enumerate((agreed, bad)):
            made = replace(terms, nonce=secrets.token_hex(16))
            short = made.code[:DIGITS]
            tried += 1
            seen[which][short] = made
            if short in seen[1 - which]:
                pair = seen[0][short], seen[1][short]
                break
    each = (time.process_time() - begun) / tried
    premise(pair[0].code[:DIGITS] == pair[1].code[:DIGITS], "the program computes the same codes")
    print(f"a collision on {DIGITS} digits after {tried} codes, {each:.2f} s of one core each")

    def join(code):
        given = ("--data", trial.rows["north"], "--approve", code, "--once", "-o", at / "north")
        return afl("session", "join", trial.place, "--key", trial.keys / "north", *given, ok=False)

    shortest, said, digits = None, {}, agreed.code.replace(" ", "")
    for n in (0, 1, 15, 16, 20, 24, 28, 31, 32, 33, 64):
        try:
            agreed.check_approved((digits * 2)[:n])
            shortest = shortest or n
        except AflError as error:
            said[n] = str(error)
    for bad_one in (digits[:31] + "g", digits[:31] + "é", digits[:31] + "٣", digits[:31] + "\n"):
        try:
            agreed.check_approved(bad_one)
            return True, f"{bad_one!r} counts as the code"
        except AflError as error:
            said[bad_one] = str(error)
    premise(shortest is not None, "a site takes part when it approves the whole code")
    malformed = all("malformed" in text for text in said.values())
    print("with 16 digits it says:", said.get(16), "; all others are called malformed:", malformed)
    done = join(digits[:16])
    sent = sorted(p.name for p in trial.place.glob("*-north"))
    print("join --approve with 16 digits ended with", done.returncode, "and sent", sent)
    whole = join("-".join(digits[i : i + 4] for i in range(0, 32, 4)))
    premise(whole.returncode == 0, f"the whole code is taken: {whole.said}")
    bits = 4 * shortest
    cost = 2 * sqrt(pi / 2 * 2.0**bits / 2)  # of two kinds, one of each
    print(f"{shortest} digits are enough: {bits} bits, about 2^{np.log2(cost):.1f} codes for a "
          f"collision, {cost * each / 3600:,.2g} h of one core")  # fmt: skip
    if bits < 128 or each < AVERAGE or not malformed or done.returncode != 2 or sent:
        return True, f"--approve takes {shortest} digits, {each:.2f} s a guess"
    premise(commands.read_session(at / "north").digest == agreed.digest, "north has approved it")
    return False, f"--approve takes {shortest} digits alone: a collision costs 2^{bits // 2} codes"


if __name__ == "__main__":
    run(main)
