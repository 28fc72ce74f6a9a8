"""adapted: statistics that can be read in the place → sums, hellos and offers of others, copied.

Malicious member: excludes another one by sending its sums first.

Shows: in a signed session, and under masks, adam, whose name comes first, waits until north has
sent, and sends as his own what lies there: the file, its body under a header of his, or, with the
key K, what he can open of it; also north's hello with its offer. Where two have sent the same, one
of them might be put out.
Must hold: no member is put out, or named as a liar, by the copy of what it has sent; what is for
another reader cannot be opened, and what is bound to another name is no message of adam's.
"""

from base import AflError, Trial, heard, of_sites, outcome, premise, run

NAMES = ("adam", "north", "south", "west")


def copied(trial, kind, number, how):
    """Adam's message made of north's; '' where he cannot make it."""
    data = trial.path(kind, number, "north").read_bytes()
    _, _, rest = data.partition(b"\n")
    if how == "file":
        trial.path(kind, number, "adam").write_bytes(data)
    elif how == "body":
        trial.raw("adam", kind, number, rest[64:])
    else:
        try:
            text = trial.opened("adam", kind, number, "north")
        except AflError as error:
            return str(error)
        to = b"" if trial.agreed.masked or kind == "hello" else trial.member("adam").server_key
        trial.post("adam", kind, number, text, to)
    return ""


def play(at, rows, protection, kind, how):
    trial = Trial(at / f"{protection}-{kind}-{how}", rows, protection=protection, threshold=3)
    trial.turn()
    if kind == "hello":
        trial.path("hello", 0, "adam").unlink()
        why = copied(trial, "hello", 0, how)
    else:
        trial.serve()
        trial.join("north")
        why = copied(trial, "sums", 1, how)
    told = {}
    with heard() as lines:
        for _ in range(8):
            for name in ("office", "south", "west", "north"):
                turn = (lambda: trial.serve(deadline=0.0)) if name == "office" else (
                    lambda n=name: trial.join(n))  # fmt: skip
                told[name] = outcome(turn)
    later = trial.server.path_of("close", 1, "office").exists()
    inside = trial.server.get_close(1 if later else 0)
    named = " | ".join([*lines, *(text for kind, text in told.values() if kind != "waits")])
    over = all((trial.site(n) / "head-2.h5").exists() for n in ("north", "south", "west"))
    blamed = [
        n for n in ("north", "south", "west") if f"of {n!r}" in named and "not there" in named
    ]
    crash = any(kind == "crash" for kind, _ in told.values())
    print(f"{protection}, {kind} of north as a {how}: {why[:60] or 'sent'}; in: {sorted(inside)}; "
          f"over: {over}; said: {named[:200]}")  # fmt: skip
    return "north" not in inside or bool(blamed) or crash, over, named


def main(at):
    rows, broken = of_sites(at / "rows", NAMES), []
    for protection in ("signed", "masked"):
        for kind in ("sums", "hello"):
            for how in ("file", "body", "text"):
                bad, over, named = play(at, rows, protection, kind, how)
                spoiled = "a member has sent something else" in named  # as by any wrong sums of his
                if bad or not (over or "adam" in named or spoiled):
                    broken.append(f"{protection}, {kind} as a {how}")
    honest = Trial(at / "honest", rows, threshold=3)
    premise(honest.play(), "without a copy the session ends")
    if broken:
        return True, f"north is put out, or blamed, by a copy: {'; '.join(broken)}"
    return False, "north stays in the sum, and nobody says that it did not tell the truth"


if __name__ == "__main__":
    run(main)
