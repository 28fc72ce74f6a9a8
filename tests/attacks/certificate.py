"""adapted: a certificate → a `done` of the session without the leaver, over a total that still holds it.

Malicious server: claims that a member left while the head still has its rows.

Shows: the session's total T is of four. West leaves, with its consent, and the others sum again.
The server gives out the head of T again, with west's rows in it bit by bit, as that of the session
without west, and signs the end of that session over T.
Must hold: under masks members have computed total and head themselves: they refuse the head, sign
no such end, and say that the server has signed another one. A signed session cannot be checked by
members, and the page on privacy says so.
"""

from base import (
    FOUR,
    Leave,
    Path,
    Trial,
    afl,
    afltool,
    canonical,
    commands,
    of_sites,
    outcome,
    premise,
    run,
)  # fmt: skip

from afltool.federation.compute import pack_arrays


def session(at, place, protection):
    """Two sessions, the second one without west; the first is over."""
    rows = of_sites(at / "rows", FOUR)
    first = Trial(at, rows, place=place, protection=protection, threshold=3)
    premise(first.play(), "the session ends")
    paper = at / f"{place}.consent"
    afl("session", "leave", first.site("west"), "--key", first.keys / "west", "-o", paper)
    agreed = commands.follow(
        Leave(first.office, without=["west"], consent=[paper], out=at / f"{place}-office")
    )
    return first, Trial.of(at, rows, agreed, f"{place}-then")


def forge(first, then):
    """What the server says of the second session: total and head of the first one."""
    begin, solved = then.server.head(1), first.solved("office")
    then.post("office", "head", 2, pack_arrays(begin, solved))
    total = first.server.total(1).digest()
    close = then.server.close_digest(1)
    said = {"close": close, "totals": [total], "head": solved.digest()}
    then.post("office", "done", 2, canonical(said))


def main(at):
    first, then = session(at / "m", "masked", "masked")
    stay = [n for n in FOUR if n != "west"]
    for _ in range(2):
        then.turn(stay)
    then.server.close(1)  # who is in, truly: without the head that follows
    forge(first, then)
    ends = {n: outcome(lambda n=n: then.join(n)) for n in stay}
    for _ in range(3):
        ends = {n: outcome(lambda n=n: then.join(n)) for n in stay}
    print("north is told:", ends["north"])
    refused = all(kind == "stops" and "not the solution" in said for kind, said in ends.values())
    over = [n for n in stay if (then.site(n) / "head-2.h5").exists()]
    signed = [n for n in stay if then.path("done", 2, n).exists()]
    print("members that have taken the head:", over, "that have signed:", signed)
    # And with the true head, but an end signed over the total that holds west:
    for kind in ("head", "done"):
        then.path(kind, 2, "office").unlink()
        for name in stay:  # so that they look again
            (then.site(name) / "taken" / f"002-{kind}-office").unlink(missing_ok=True)
    then.server.turn()
    premise(then.server.newest_round() == 2, "the server has solved")
    forged = {"close": then.server.close_digest(1), "totals": [first.server.total(1).digest()],
              "head": then.solved("office").digest()}  # fmt: skip
    premise(canonical(forged) != then.server.result(2), "it is another end")
    then.post("office", "done", 2, canonical(forged))
    ends = {n: outcome(lambda n=n: then.join(n, anew=True)) for n in stay}
    print("with the true head and another end, north is told:", ends["north"])
    said_so = all(kind == "stops" and "another end" in said for kind, said in ends.values())
    premise(then.solved("north").digest() == then.pooled(*stay), "the true head is without west")

    old, new = session(at / "s", "signed", "signed")
    for _ in range(2):
        new.turn(stay)
    new.server.close(1)
    size = new.server.layout(1).size
    new.post("office", "total", 1, old.server.layout(1).joined(old.server.total(1)).tobytes())
    premise(size == old.server.layout(1).size, "the same sums")
    forge(old, new)
    ends = {n: outcome(lambda n=n: new.join(n)) for n in stay}
    believed = all((new.site(n) / "head-2.h5").exists() for n in stay)
    page = (Path(afltool.__file__).parent.parent / "docs" / "privacy.md").read_text()
    told = "members cannot check the total" in page
    print("signed: the total with west is believed:", believed, "and the page says so:", told)
    if not refused or over or signed or not said_so or (believed and not told):
        return True, "an end over a total with the leaver's rows is believed"
    return False, "a total that members have not computed is refused, and so is its end"


if __name__ == "__main__":
    run(main)
