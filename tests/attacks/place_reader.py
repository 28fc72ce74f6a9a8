"""adapted: letters, totals and heads that lie open → messages, which are encrypted.

Reader of the place, without a key: reads sums under masks with a threshold.

Shows: a session under masks (three of four must stay) that ends with an evaluation. Total, head,
class counts, confusion matrix and numbers of rows must not be readable in the place: not as they
are, not by a key that follows from what everybody sees, not by the lengths of files.
Must hold: what is given to all is encrypted for members; two sessions whose rows differ have files
of the same lengths and the same open text, but for random numbers.
"""

from base import (
    FOUR,
    AflError,
    Box,
    Trial,
    features,
    hashlib,
    json,
    keys,
    np,
    of_sites,
    premise,
    run,
    shutil,
    stored,
)  # fmt: skip


def session(at, rows, test):
    trial = Trial(at, rows, test=test, threshold=3, new_keys=at.parent / "keys")
    premise(trial.play(), "the session ends")
    return trial


def main(at):
    rows, test = of_sites(at / "rows", FOUR), of_sites(at / "test", FOUR, n=25)
    trial = session(at / "one", rows, test)
    copy = at / "reader"  # what a reader of the place has
    shutil.copytree(trial.place, copy)
    everything = b"".join(p.read_bytes() for p in sorted(copy.iterdir()))
    secrets = {}
    for r in (1, 2):
        total = trial.server.total(r)
        for name, a in {**total.arrays, "class counts": total.class_counts}.items():
            for kind in ("<i8", "<i4", "<f8", "<u8"):
                secrets[f"{name} of round {r} as {kind}"] = a.astype(kind).tobytes()[:48]
        secrets[f"digest of total {r}"] = total.digest().encode()
        secrets[f"digest of total {r}, bytes"] = bytes.fromhex(total.digest())
    head = trial.solved("north")
    secrets["digest of the head"] = head.digest().encode()
    for name, a in head.state_dict().items():
        if a.nbytes >= 24:
            secrets[f"{name} of the head"] = a.tobytes()[:24]
    counts = sum(np.bincount(stored(p)[1], minlength=3) for p in test.values())
    secrets["the test counts in words"] = json.dumps(counts.tolist()).encode()
    known = {name for name, value in secrets.items() if len(set(value)) > 2 and value in everything}
    print("of", len(secrets), "facts found as they are:", sorted(known))

    agreed, opened = trial.agreed, []
    stranger = keys.load(keys.new("eve", at / "eve").with_suffix(""))
    public = [b"", bytes(32), bytes.fromhex(agreed.digest), agreed.digest.encode(),
              hashlib.sha256(agreed.digest.encode()).digest(), bytes.fromhex(agreed.nonce),
              agreed.nonce.encode(), agreed.code.encode(), agreed.code.replace(" ", "").encode(),
              agreed.text, bytes.fromhex(agreed.server.key)]  # fmt: skip
    for path in sorted(copy.iterdir()):
        if path.name == "session.json":
            continue
        number, kind, sender = path.name.split("-", 2)
        for group in public:
            for mine in (None, stranger.agreeing):
                box = Box(agreed.digest, stranger, group)
                try:
                    box.open(kind, int(number), agreed.people[sender], path.read_bytes(), mine)
                    opened.append(path.name)
                except AflError:
                    continue
    print("messages opened by a guess at the key:", opened)

    few = {n: features(at / "few", n, *_fewer(p), ["c0", "c1", "c2"]) for n, p in rows.items()}
    other = session(at / "two", few, {**test, "north": few["north"]})
    seen = [_seen(t) for t in (trial, other)]
    differ = sorted(n for n in {**seen[0], **seen[1]} if seen[0].get(n) != seen[1].get(n))
    print("files whose length or open text is another, for other rows:", differ)
    if known or opened or differ:
        return True, f"a reader of the place has {sorted(known)}, {opened}, {differ}"
    return False, "no sum under masks, nor what follows from it, can be read in the place"


def _fewer(path):
    X, y = stored(path)
    return X[:-7] / 512.0, y[:-7]


def _seen(trial):
    """Of each file its length, and its header without the hash."""
    found = {}
    for path in trial.place.iterdir():
        if path.name != "session.json":
            header, _, rest = path.read_bytes().partition(b"\n")
            found[path.name] = len(rest), json.loads(header)[1:4]
    return found


if __name__ == "__main__":
    run(main)
