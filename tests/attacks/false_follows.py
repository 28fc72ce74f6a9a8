"""new: a session that says that it follows one of other rows.

Malicious server: a consent to leave a session counts for those that it followed, too.

Shows: four sites have summed their rows. Then they sum other rows, of which cleo will not mind that
they are known; the server says in the terms that this session follows the first one. cleo leaves
it, and signs that. With this consent the server makes a session of the first rows without cleo.
The difference to the first one is the gram of cleo, which has left only the one of other rows.
Must hold: a site refuses to follow a session of its ledger with none of that one's rows.
"""

from base import Trial, of_sites, outcome, premise, replace, run

from afltool.federation.agreement import Consent

NAMES, STAY = ("anna", "bert", "cleo", "dora"), ("anna", "bert", "dora")


def turns(trial):
    for _ in range(6):
        trial.serve()
        said = {name: outcome(lambda n=name: trial.join(n)) for name in trial.names}
    print(f"{trial.place.name}: {said['anna']}"[:260])
    return trial.total(1)


def main(at):
    first = Trial(at, of_sites(at / "rows", NAMES, n=44, d=5), place="first")
    premise(first.play(), "the first session ends")
    others = of_sites(at / "others", NAMES, n=30, d=5)
    terms = replace(first.agreed, follows=first.agreed.digest, nonce="1" * 32)
    turns(second := Trial.of(at, others, terms, "second"))
    consent = Consent.sign(second.agreed.digest, first.me("cleo"))
    members = tuple(p for p in first.agreed.members if p.name != "cleo")
    terms = replace(terms, members=members, threshold=3, consents=(consent,), nonce="2" * 32)
    total = turns(Trial.of(at, first.rows, terms, "third", names=STAY))
    if not isinstance(total, str):
        gone = first.server.total(1).arrays["gram"] - total.arrays["gram"]
        return True, f"the difference to the first session is cleo's gram: {gone[:3]}"
    return False, "a session of other rows follows nothing, and to leave it is to leave it alone"


if __name__ == "__main__":
    run(main)
