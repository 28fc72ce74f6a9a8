"""adapted: letters with texts → messages, which have none; names by `keys new`, a .pub, session.json.

Malicious server or member: names that people cannot tell apart, and paths that escape.

Shows: a roster of "nord" and "nоrd" (a Cyrillic o), of "Süd" in two Unicode forms, of a name with a
zero-width or a narrow space: people who read the list would see one hospital twice or another one.
When a step of the server or of a member fails, what everybody can read might have the paths of its
machine; and a name with a slash is a path.
Must hold: names that look alike or are two forms of one name are refused, by each way that they may
come; messages name files without folders.
"""

import unicodedata

from base import FOUR, Agreement, Trial, afl, heard, json, keys, of_sites, outcome, premise, run

PAIRS = {
    "Cyrillic o": ("nord", "n\u043erd"),
    "NFC and NFD": (unicodedata.normalize("NFC", "Süd"), unicodedata.normalize("NFD", "Süd")),
    "ligature": ("office-fi", "office-\ufb01"),
    "full width": ("west", "\uff57est"),
    "Greek": ("A1", "\u03911"),
    "another case": ("west", "West"),
    "zero width": ("west", "we\u200bst"),
    "right to left": ("west", "\u202etsew"),
    "blank": ("west", "west "),
    "line": ("west", "west\n"),
    "Kelvin": ("k1", "\u212a1"),
    "dotless": ("i1", "\u01311"),
    "folder": ("west", "../west"),
    "root": ("west", "/etc/west"),
    "dot": ("west", "west."),
    "device": ("west", "CON"),
    "null": ("west", "we\0st"),
    "escape codes": ("west", "\x1b[2Kwest"),
}


def main(at):
    rows, alike = of_sites(at / "rows", FOUR), []
    honest = Trial(at / "honest", rows, threshold=3)
    text = honest.agreed.text
    for n, (what, pair) in enumerate(PAIRS.items()):
        made = [outcome(lambda p=p, n=n: keys.new(p, at / f"keys-{n}"))[0] for p in pair]
        body = json.loads(text)
        people = body["members"]
        people[0]["name"], people[1]["name"] = pair
        body["members"] = sorted(people, key=lambda p: (p["name"], p["key"]))
        data = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False).encode()
        kind, said = outcome(lambda d=data: Agreement.parse(d))
        line = (honest.keys / "east.pub").read_text().rsplit(" ", 1)[0]
        pub = at / f"{n}.pub"
        pub.write_text(f"{line} {pair[1]}\n")
        read, who = outcome(lambda p=pub: keys.load_public(p).name)
        if made[1] == "waits" and what != "another case":
            alike.append(f"{what} by keys new")
        if read == "waits" and who not in (pair[0], "West"):
            alike.append(f"{what} by a public file: {who!r}")
        if kind != "stops":
            alike.append(f"{what} by session.json")
        print(f"{what}: keys new: {made[1]}; a public file: {read}; session.json: {said[:90]}")
    done = afl("keys", "new", "n\u043erd", "../west", "-o", at / "escaped", ok=False)
    outside = [p.name for p in at.glob("west*")]
    premise(done.returncode == 2, f"the command refuses it: {done.said}")

    trial = Trial(at / "a-folder-of-the-server", rows, threshold=3)
    ends = {}
    trial.turn()
    trial.server.close(0)
    with heard() as lines:
        trial.raw("west", "sums", 1, b"rubbish")  # it is passed over, in words
        for name in ("east", "north", "south"):
            trial.join(name)
        ends["office"] = outcome(lambda: trial.serve(deadline=0.0))
        (trial.office / "total-1.h5").mkdir()  # something is wrong on the server's machine
        for _ in range(4):
            for name in ("office", "east", "north", "south"):
                turn = (lambda: trial.serve(0.0)) if name == "office" else (
                    lambda n=name: trial.join(n))  # fmt: skip
                ends[name] = outcome(turn)
    print("the server ended with", ends["office"])
    premise(any("west" in line for line in lines), "the rubbish of west was named")
    paths = []
    for path in trial.place.iterdir():
        if path.name == "session.json":
            data = path.read_bytes()
        else:
            number, kind, sender = path.name.split("-", 2)
            data = path.read_bytes()
            if kind not in ("key",) and sender != "west":
                data += trial.opened("north", kind, int(number), sender)
        if b"a-folder-of-the-server" in data or str(at).encode() in data:
            paths.append(path.name)
    print("messages with a path:", paths, "; files outside of their folder:", outside)
    if alike or paths or outside:
        return True, f"{alike}; paths in {paths}; outside: {outside}"
    return False, "names that look alike are refused, and messages have no paths"


if __name__ == "__main__":
    run(main)
