"""new: an old consent, used for another session.

Malicious server: leaves a member out of a session by the consent that it gave to leave another one.

Shows: years ago cleo left a session of other rows, and signed it. Now the four have summed new rows
together. The server makes a session that follows this one without cleo, and puts the old consent
into it. The difference of the two totals is the gram of cleo, who has never left this session.
Must hold: a consent counts for the session that it names, and for those that this one followed.
"""

from base import Trial, compute, np, of_sites, outcome, premise, replace, run

from afltool.federation.agreement import Consent

NAMES, STAY = ("anna", "bert", "cleo", "dora"), ("anna", "bert", "dora")


def second(first, consent, place):
    """A session that follows, without cleo; what each says, and its total."""
    members = tuple(p for p in first.agreed.members if p.name != "cleo")
    agreed = replace(first.agreed, members=members, threshold=3, follows=first.agreed.digest,
                     consents=(consent,), nonce=f"{len(place):032x}")  # fmt: skip
    then = Trial.of(first.at, first.rows, agreed, place, names=STAY)
    ends = {}
    for _ in range(6):
        then.serve()
        for name in STAY:
            ends[name] = outcome(lambda n=name: then.join(n))
    print(f"{place}: {ends['anna']}"[:250])
    return then.total(1)


def main(at):
    old = Trial(at, of_sites(at / "old", NAMES, n=30, d=5), place="old", threshold=3)
    first = Trial(at, of_sites(at / "new", NAMES, n=44, d=5), place="new")
    premise(first.play(), "the session of all four ends")
    cleo = first.me("cleo")
    total = second(first, Consent.sign(old.agreed.digest, cleo), "then")
    if isinstance(total, str):
        true = second(first, Consent.sign(first.agreed.digest, cleo), "with its consent")
        premise(not isinstance(true, str), "with the consent for this session the others go on")
        return False, "a consent for another session counts for nothing"
    rows = first.member("cleo").rows.blocks(first.agreed, False, None, None)
    plain = compute.compute_statistics(first.agreed, compute.first_head(first.agreed), rows)
    gone = first.server.total(1).arrays["gram"] - total.arrays["gram"]
    return True, f"the gram of cleo, exactly: {np.array_equal(gone, plain.arrays['gram'])}"


if __name__ == "__main__":
    run(main)
