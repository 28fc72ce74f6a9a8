"""adapted: a certificate of 1 of 3 rounds → a server that signs the end after the first round.

Malicious server: ends a session by its first rounds alone.

Shows: DeepAFL of three rounds. The server signs the end over one round and the head after it, which
is not solved, under the number of that round and under that of the last; or it begins no further
round. What later rounds would have held, nobody sees.
Must hold: an end names all rounds of the session, and its head is the solved one; no member has a
head, a summary or an end of its own before, and no command says that the session is over.
"""

from base import SITES, Trial, afl, canonical, of_sites, outcome, premise, run


def main(at):
    rows = of_sites(at / "rows")
    options = {"layers": 1, "width": 8, "compute": "fixed"}
    trial = Trial(at, rows, head="deepafl", options=options)
    while trial.server.newest_round() < 2:
        trial.turn()
    for _ in range(2):
        for name in SITES:
            trial.join(name)
    rounds = len(trial.server.head(1).schedule())
    premise(
        rounds == 3 and trial.member("north").newest_round() == 2, f"three rounds, found {rounds}"
    )
    head, total = trial.server.head(2), trial.server.total(1)
    said = {
        "close": trial.server.close_digest(1),
        "totals": [total.digest()],
        "head": head.digest(),
    }
    premise(canonical(said) == trial.server.result(2), "this is what an end says")
    trial.post("office", "done", 2, canonical(said))
    first = {n: outcome(lambda n=n: trial.join(n)) for n in SITES}
    trial.post("office", "done", 4, canonical(said))
    then = {n: outcome(lambda n=n: trial.join(n)) for n in SITES}
    print("north waits for:", first["north"], "and", then["north"])
    done = afl("session", "join", trial.place, "--key", trial.keys / "north", "--data", rows["north"],
               "--once", "-o", trial.site("north"), AFLTOOL_STATE=str(trial.state("north")))  # fmt: skip
    report = afl("session", "report", trial.site("north"), ok=False)
    print("join says:", done.said.strip()[-120:], "| report ends with", report.returncode)
    signed = sorted(p.name for p in trial.place.glob("*-done-*") if "office" not in p.name)
    files = [
        p for n in SITES for p in trial.site(n).glob("*") if p.name in ("head.h5", "summary.json")
    ]
    early = done.stdout.strip() or not report.returncode

    # The honest server goes on: members compare the end of all three rounds with the forged one.
    trial.path("done", 2, "office").unlink()
    ends = {}
    trial.path("done", 4, "office").unlink()
    while trial.server.newest_round() < 4:
        trial.server.turn()
        ends |= {n: outcome(lambda n=n: trial.join(n)) for n in SITES}
    trial.post("office", "done", 4, canonical(said))
    for name in SITES:
        (trial.site(name) / "taken" / "004-done-office").unlink(missing_ok=True)
        ends[name] = outcome(lambda n=name: trial.join(n, anew=True))
    print("at the last round north is told:", ends["north"])
    premise(trial.member("north").newest_round() == 4, "the rounds are over")
    refused = all(kind == "stops" and "another end" in text for kind, text in ends.values())
    if signed or files or early or not refused:
        return True, f"an end of 1 of {rounds} rounds holds: {signed} {files} {ends['north']}"
    return False, "an end that does not name all rounds is refused"


if __name__ == "__main__":
    run(main)
