"""adapted: letters → messages; --check-sums → always, by `close`, which names the digest of each file.

Malicious member: makes the server look as if it had counted a wrong sum.

Shows: west's sums were accepted and are in the round. Then west puts another file of its own in the
place of its first one. North adds up what lies there, and might be told that *the server* is wrong.
Before, in another session, north alone finds another hello of west than the server has counted.
Must hold: a file that was exchanged is its sender's doing, and the message says so; the round goes
on with what was counted, as the server has kept it.
"""

from base import FOUR, Trial, heard, of_sites, outcome, premise, run


def other_hello(at, rows):
    """Whether the session of all ends rightly, though north was shown another hello of west."""
    trial = Trial(at, rows, threshold=3, place="hello")
    trial.turn()
    trial.serve()
    payload, first = trial.opened("west", "hello", 0, "west"), trial.path("hello", 0, "west")
    counted = first.read_bytes()
    premise(trial.post("west", "hello", 0, payload) != counted, "it is another one")
    waits = trial.join("north")
    print("of another hello north says", waits)
    same = trial.play() and trial.solved("north").digest() == trial.pooled(*FOUR)
    return same and "hello of west" in waits


def main(at):
    if not other_hello(at, of_sites(at / "rows", FOUR)):
        return True, "another hello for one site stops it"
    trial = Trial(at, of_sites(at / "rows", FOUR), threshold=3)
    trial.turn()
    trial.serve()
    for name in FOUR:
        trial.join(name)
    trial.server.close(1)  # all sums are counted
    first = trial.path("sums", 1, "west").read_bytes()
    payload = trial.opened("west", "sums", 1, "west")
    second = trial.post("west", "sums", 1, bytes(8) + payload[8:])
    premise(first != second and len(first) == len(second), "the second file is another one")
    ends = {}
    with heard() as lines:
        for _ in range(2):
            for name in ("east", "north", "south"):
                ends[name] = outcome(lambda n=name: trial.join(n))
        said = " | ".join(lines)
        for _ in range(8):
            ends["office"] = outcome(trial.serve)
            for name in ("east", "north", "south"):
                ends[name] = outcome(lambda n=name: trial.join(n))
    print("north is told:", said[:400])
    print("and ends with", ends["north"])
    texts = [text for kind, text in ends.values() if kind != "waits"]
    blames = [t for t in (*texts, *lines) if "server" in t and "west" not in t]
    over = trial.site("north").joinpath("head-2.h5").exists()
    if blames or texts:
        return True, f"a member that exchanges its file stops others: {blames or texts}"
    premise("'west'" in said, f"the message names west: {said}")
    premise(over, "the round goes on with what was counted")
    same = trial.solved("north").digest() == trial.pooled(*FOUR)
    return not same, "the message names west, and the sum is of the files that were counted"


if __name__ == "__main__":
    run(main)
