"""new: what a site reads before it approves.

Malicious server: terms that show other terms, or that cannot be shown.

Shows: `join` without --approve and `status` print what session.json says. Keys of the features'
space hold line breaks and escape codes, so that a line "threshold 4 of 4" seems to be there; a head
has 10^9 rounds, whose list fills the memory of whoever looks; the file is nested deeply, is 5 MB,
has a class name whose accents take hours to be sorted, NaN, an integer of 5,000 digits, a name
twice, a byte order mark.
Must hold: each is refused in words, quickly, by join and by status; nothing is sent.
"""

import time

from base import FOUR, Agreement, Trial, afl, crashed, json, of_sites, outcome, run


def main(at):
    rows = of_sites(at / "rows", FOUR)
    trial = Trial(at, rows, threshold=3, scale=10)
    trial.place.mkdir(parents=True)
    body = json.loads(trial.agreed.text)

    def but(**changed):
        return json.dumps(
            {**body, **changed}, indent=1, sort_keys=True, ensure_ascii=False
        ).encode()

    def head(**options):
        options = {**body["head"]["options"], **options}
        return but(head={**body["head"], "options": options})

    def space(key):
        return but(space={**body["space"], key: 1})

    text = trial.agreed.text
    cases = {
        "a line in a key": space("x\n   threshold  4 of 4 must stay"),
        "escape codes in a key": space("x\x1b[3A\r   threshold  4 of 4 must stay"),
        "letters that look alike": space("dіm"), "an empty key": space(""),
        "10^9 rounds": but(head={**body["head"], "name": "softmax", "options": {"rounds": 10**9}}),
        "10^9 layers": but(head={**body["head"], "name": "deepafl", "options": {"layers": 10**9}}),
        "a name of 400,000 accents": but(classes=["a" + "\u0315\u0300" * 200_000, "b"]),
        "an unknown option": head(other=1), "nested deeply": b"[" * 200_000 + b"]" * 200_000,
        "too large": text + b" " * (5 << 20), "a mark in front": b"\xef\xbb\xbf" + text,
        "NaN": text.replace(b'"min_rows": 0', b'"min_rows": NaN'),
        "5,000 digits": text.replace(b'"min_rows": 0', b'"min_rows": ' + b"9" * 5000),
        "a name twice": text.replace(b'"min_rows": 0', b'"min_rows": 9,\n "min_rows": 0'),
        "true for 1": text.replace(b'"min_rows": 0', b'"min_rows": false'),
        "a blank more": text + b"\n",
    }  # fmt: skip
    broken = []
    for what, data in cases.items():
        begun = time.process_time()
        kind, said = outcome(lambda d=data: str(Agreement.parse(d)))
        took = time.process_time() - begun
        print(f"{what}: {kind} in {took:.1f} s: {said[:120]!r}")
        if kind != "stops" or took > 5:
            broken.append(what)
    for what in ("a line in a key", "nested deeply", "too large", "10^9 rounds"):
        (trial.place / "session.json").write_bytes(cases[what])
        for words in (("status", trial.place), ("join", trial.place, "--key", trial.keys / "north",
                                                "--data", rows["north"], "-o", at / "north")):  # fmt: skip
            done = afl("session", *words, ok=False)
            if crashed(done) or "4 of 4 must" in done.stdout:
                broken.append(f"{words[0]}, {what}: {done.returncode}")
    sent = sorted(p.name for p in trial.place.glob("*-*"))
    if broken or sent:
        return True, f"terms that are shown as others, or not at all: {broken} {sent}"
    return False, f"{len(cases)} odd sessions are refused in words"


if __name__ == "__main__":
    run(main)
