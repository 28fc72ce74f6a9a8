"""adapted: the folder of rounds → the directory of the session and the ledger; numbers in a message.

Reader of the place (with K: a member): a site that was restored from a backup masks twice.

Shows: north's machine is restored to a backup that was taken after its offer (its folder, key and
ledger); one row was taken out meanwhile. It joins again and might send other numbers under the same
masks. Whoever kept both files subtracts them: the row that was taken out, exactly. Then the place
has also lost, or spoiled, what north has sent, and the ledger alone, or the folder alone, is old.
Must hold: its own signed message in the place, or its ledger, stops the site, with a message.
"""

from base import (
    FOUR,
    Trial,
    clusters,
    features,
    np,
    of_sites,
    outcome,
    premise,
    run,
    shutil,
    triangle,
)


def main(at):
    fewer = features(
        at / "rows", "north-29", *(a[:-1] for a in clusters(31, 5, seed=1)), ["c0", "c1", "c2"]
    )
    broken = []
    for what, spoil, keep in (
        ("all is old", None, ()),
        ("folder and key are old, the place lost it", "lost", ("states",)),
        ("folder and key are old, the place spoiled it", "spoiled", ("states",)),
        ("the ledger is old", None, ("sites",)),
    ):
        here = at / what.replace(" ", "-")
        rows = of_sites(here / "rows", FOUR, n=30, d=5)
        trial = Trial(here, rows, threshold=3)
        trial.turn()  # offers
        trial.serve()
        trial.join("south")  # all offers are there
        north = trial.member("north")
        premise(set(north.offers(1)) == set(FOUR), "north has seen the offers, and kept them")
        for part in ("sites", "states", "keys"):
            shutil.copytree(here / part, here / "backup" / part)
        trial.join("north")
        path = trial.path("sums", 1, "north")
        first = path.read_bytes()
        if spoil == "lost":
            path.unlink()
        elif spoil:
            path.write_bytes(b"rubbish")
        for part in ("sites", "states", "keys"):
            if part not in keep:
                shutil.rmtree(here / part)
                shutil.copytree(here / "backup" / part, here / part)
        trial.rows["north"] = fewer
        kind, said = outcome(lambda t=trial: t.join("north", anew=True))
        again = path.read_bytes() if path.exists() else first
        print(f"{what}: {kind}: {said[:200]}")
        if again == first or again == b"rubbish":
            premise(kind == "stops" or again == first, "it says something, or sends the same")
            continue
        size = trial.server.layout(1).size
        both = []
        for data in (first, again):
            path.write_bytes(data)
            both.append(np.frombuffer(trial.opened("south", "sums", 1, "north"), "<u8", size))
        start = [n for n, _ in trial.server.layout(1).arrays].index("gram")
        before = sum(o.size for _, o in trial.server.layout(1).arrays[:start])
        G = triangle((both[0] - both[1]).view(np.int64)[before : before + 15]).astype(float)
        print("   rank of the difference of both:", int(np.linalg.matrix_rank(G)))
        broken.append(what)
    if broken:
        return True, f"a restored site masks twice: {'; '.join(broken)}"
    return False, "the restored site stops, or sends the same bytes"


if __name__ == "__main__":
    run(main)
