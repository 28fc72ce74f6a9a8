"""new: whoever may write into the place spoils it, at each turn, by chance.

The place: loses files, cuts them, turns a bit, puts another message under a name, a pipe, a link to
/dev/zero, or a file of 10^12 bytes.

Shows: sessions of one round and of several, each file spoiled with chance 0.3 after most turns; with
odd seeds each turn is of a new process, as with --once.
Must hold: each session ends with the head of all rows; no error but that the place is away.
"""

import os

from base import Place, np, outcome, premise, run
from parties import Federation

SEEDS = 4


def small(path):
    """What is in a file; rubbish for what is none, or huge."""
    whole = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20
    return path.read_bytes() if whole else b"x"


def spoil(folder, rng):
    for path in sorted(folder.glob("[0-9]*")):
        if rng.random() < 0.3:
            data, how = bytearray(small(path)), rng.integers(7)
            path.unlink()
            if how == 1:
                path.write_bytes(data[: len(data) // 2])
            elif how == 2 and data:
                data[rng.integers(len(data))] ^= 1
                path.write_bytes(data)
            elif how == 3:
                others = sorted(folder.glob("[0-9]*"))
                path.write_bytes(small(others[rng.integers(len(others))]))
            elif how == 4:
                os.mkfifo(path)
            elif how == 5:
                path.symlink_to("/dev/zero")
            elif how == 6:
                with path.open("wb") as file:
                    file.truncate(1 << 40)


def play(at, seed):
    """How each party ended, after how much was spoiled, and whether the head is right."""
    f = Federation(at, "softmax" if seed == 3 else "linear", place=Place)
    rng, ends, spoiled = np.random.default_rng(seed), {}, 0
    for _ in range(150):
        if seed % 2:
            f.begin()
        ends = {name: outcome(f.party(name).turn) for name in ("server", *f.names)}
        if set(ends.values()) == {("waits", "")}:
            break
        if rng.random() < 0.6:
            spoil(at / "place", rng)
            spoiled += 1
    return ends, spoiled, set(ends.values()) == {("waits", "")} and f.is_pooled()


def main(at):
    broken = []
    for seed in range(SEEDS):
        ends, spoiled, right = play(at / f"{seed}", seed)
        print(f"seed {seed}: spoiled {spoiled} times; the right head: {right}")
        premise(spoiled, "the place was spoiled")
        if not right:
            broken.append(f"seed {seed}: {ends}")
    if broken:
        return True, f"a place that is spoiled stops a session, or changes its head: {broken}"
    return False, f"{SEEDS} sessions end with the head of all rows"


if __name__ == "__main__":
    run(main)
