"""adapted: certificates for `verify`, `countersign` → consents for `session leave`, messages `done`.

Malicious server, member or outsider: papers of odd form that end a command in a traceback.

Shows: consents of odd form, some with a true signature, and ends of a session (`done`) that say
something else. What is read from others must end in a message that names the file.
Must hold: exit code 2 to 5 and a message for each, never a traceback; nobody's end is believed that
differs from one's own.
"""

from base import SITES, Leave, Trial, afl, canonical, crashed, json, of_sites, outcome, premise, run


def main(at):
    trial = Trial(at, of_sites(at / "rows", ("east", *SITES)), threshold=3)
    premise(trial.play(), "the session ends")
    paper = at / "west.consent"
    leave = ("session", "leave", trial.office, "--without", "west", "-o", at / "next", "--consent")
    afl("session", "leave", trial.site("west"), "--key", trial.keys / "west", "-o", paper)
    body = json.loads(paper.read_text())
    whole = afl(*leave, paper, ok=False)
    premise(whole.returncode == 0, f"an honest consent is taken: {whole.said}")

    def but(**changed):
        return json.dumps({**body, **changed})

    cases = {
        "empty": "", "no JSON": "x{", "a number": "7", "a list": "[]", "nothing": "{}",
        "null": "null", "nested deeply": "[" * 100_000 + "]" * 100_000,
        "a large number": "9" * 5000, "not UTF-8": b"\xff\xfe{}", "NaN": "NaN",
        "another field": but(extra=1), "one field less": json.dumps({"name": "west"}),
        "the name is a list": but(name=[]), "the name is a number": but(name=7),
        "the name is a folder": but(name="../west"), "the name is another": but(name="north"),
        "the key is a list": but(key=["0"]), "the key is null": but(key=None),
        "the key is of small order": but(key="01" + "00" * 31), "the key is no key": but(key="zz"),
        "the session is a list": but(session=[]), "the session is null": but(session=None),
        "the session is another": but(session="0" * 64), "the session is short": but(session="ab"),
        "the signature is a number": but(signature=1), "the signature is short": but(signature="a"),
        "the signature is zeros": but(signature="00" * 64), "it is a folder": None,
    }  # fmt: skip
    crashes = []
    for name, text in cases.items():
        path = at / f"{name.replace(' ', '-')}.consent"
        if text is None:
            path.mkdir()
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for more in ((), ("--consent", paper)):
            kind, said = leaves(trial, [path, *([paper] if more else [])], at / "no")
            taken = kind == "waits" and not more
            ok = kind == "stops" or (kind == "waits" and more)
            if not ok or taken:
                crashes.append(f"{name}{', beside a good one' if more else ''}")
                print(f"CRASH {crashes[-1]}: {said[:140]}")
    for name in ("nested deeply", "the name is a list", "the name is a number"):  # by the command
        done = afl(*leave, at / f"{name.replace(' ', '-')}.consent", "--consent", paper, ok=False)
        print(f"leave --consent, {name}: {done.returncode} {done.said.strip()[-110:]}")
        if crashed(done):
            crashes.append(f"the command, {name}")

    ends = {"a list": b"[]", "empty": b"", "deep": b"[" * 9000 + b"]" * 9000, "rubbish": b"\xff" * 99,
            "another": canonical({"close": "0" * 64, "totals": [], "head": "0" * 64})}  # fmt: skip
    for name, payload in ends.items():
        for sender, readers in (("office", ("north",)), ("west", ("office", "north"))):
            trial.post(sender, "done", 2, payload)
            for reader in readers:
                own = trial.site(reader) if reader != "office" else trial.office
                (own / "taken" / f"002-done-{sender}").unlink(missing_ok=True)
                trial.parties.pop(reader, None)
                party = trial.server if reader == "office" else trial.member(reader)
                party.box.group = trial.box("east").group
                kind, said = outcome(lambda p=party, s=sender: p.take("done", 2, s) == p.result(2))
                if kind == "crash" or said is True:
                    crashes.append(f"done of {sender}, {name}, at {reader}: {said}")
    if crashes:
        return (
            True,
            f"{len(crashes)} of {2 * len(cases) + 18} odd papers: {'; '.join(crashes)[:300]}",
        )
    return False, f"{len(cases)} odd consents and {len(ends)} odd ends each end in a message"


def leaves(trial, papers, out):
    """What the function behind the command does with consents; it runs in this process."""
    from base import commands, shutil

    shutil.rmtree(out, ignore_errors=True)
    return outcome(
        lambda: str(commands.follow(Leave(trial.office, without=["west"], consent=papers, out=out)))
    )


if __name__ == "__main__":
    run(main)
