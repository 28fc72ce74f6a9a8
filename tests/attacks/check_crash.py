"""adapted: signed totals for `aggregate --check` → messages of the server to members.

Malicious server: messages that end `session join` in a traceback at a member.

Shows: keys, closes, totals and heads of the server, with its true signature, that are too short,
too long, no JSON, nested deeply, of another type, or whose key is of small order.
Must hold: a member waits or ends with exit code 2 to 5 and a message for each, never a traceback,
and takes no such head or total.
"""

import struct
from itertools import count

from base import SITES, Trial, afl, canonical, crashed, np, of_sites, outcome, premise, run, shutil
from msgspec import msgpack

NUMBER = count()


def state(at, rows, protection, steps):
    """A session in which north has come so far; its folders can be copied."""
    trial = Trial(
        at / f"trial-{next(NUMBER)}", rows, protection=protection, threshold=3, new_keys=at / "keys"
    )
    trial.serve()
    if steps:
        trial.turn()
        trial.server.close(0)
    if steps > 1:
        for name in SITES:
            trial.join(name)
        trial.server.close(1)
    return trial


def main(at):
    rows, crashes, n = of_sites(at / "rows"), [], 0
    deep = b'{"before":"","members":' + b"[" * 50_000 + b"]" * 50_000 + b"}"

    def tried(trial, name, act, who="north"):
        nonlocal n
        n += 1
        keep = at / "keep"
        shutil.copytree(trial.at, keep, dirs_exist_ok=True)
        trial.parties.pop(who, None)
        act()
        kind, said = outcome(lambda: trial.join(who, anew=True))
        if kind == "waits":  # a second look, after the first one has set rubbish aside
            kind, said = outcome(lambda: trial.join(who))
        taken = (trial.site(who) / "head-2.h5").exists()
        print(f"{kind:5} {name}: {said[:110]}")
        if kind == "crash" or taken:
            crashes.append(name)
        done = afl("session", "join", trial.place, "--key", trial.keys / who, "--data", rows[who],
                   "--once", "-o", trial.site(who), "--approve", trial.agreed.code, "--allow",
                   trial.agreed.protection, ok=False) if n % 7 == 0 else None  # fmt: skip
        if done is not None and done.returncode and crashed(done):
            crashes.append(f"the command: {name}")
        shutil.rmtree(trial.at)
        shutil.move(keep, trial.at)
        trial.parties.pop(who, None)

    trial = state(at, rows, "signed", 0)
    north = next(p for p in trial.agreed.members if p.name == "north")
    group = trial.server.box.group
    place = trial.agreed.places["north"]
    for name, payload in {
        "no key": b"", "half a key": bytes(32), "two keys": bytes(128),
    }.items():  # fmt: skip
        tried(trial, name, lambda p=payload: trial.post("office", "key", place, p, north.agreeing))
    tried(trial, "a key for all", lambda: trial.post("office", "key", place, group + bytes(32)))

    trial = state(at, rows, "signed", 0)
    small = group_and_small = trial.server.box.group + bytes(32)  # a server's key of small order
    premise(len(small) == 64, "the key of the session and that of the server's boxes")
    trial.post("office", "key", place, group_and_small, north.agreeing)
    for name in SITES:
        trial.join(name)
    trial.server.close(0)
    tried(trial, "a key of small order", lambda: None)

    trial = state(at, rows, "masked", 0)
    for name in SITES:
        trial.join(name)
    server = trial.server
    good = {x: server.take("hello", 0, x) and server.digest_of("hello", 0, x) for x in SITES}
    long = {f"m{i}": "0" * 64 for i in range(10)}
    for name, payload in {
        "close is empty": b"", "close is a list": b"[]", "close is a number": b"7",
        "close is nested deeply": deep, "close is not UTF-8": b"\xff\xfe",
        "close is NaN": b"NaN", "no members": canonical({"before": "", "members": {}}),
        "members are a list": canonical({"before": "", "members": SITES}),
        "a digest is a number": canonical({"before": "", "members": {**good, "west": 7}}),
        "a digest is null": canonical({"before": "", "members": {**good, "west": None}}),
        "a digest is short": canonical({"before": "", "members": {**good, "west": ""}}),
        "one member": canonical({"before": "", "members": {"north": good["north"]}}),
        "strangers": canonical({"before": "", "members": {**good, **long}}),
        "before is a list": canonical({"before": [], "members": good}),
        "another before": canonical({"before": "0" * 64, "members": good}),
        "a large number": b'{"before":"","members":' + b"9" * 6000 + b"}",
        "a million bytes": b"x" * (1 << 20),
    }.items():  # fmt: skip
        tried(trial, name, lambda p=payload: trial.post("office", "close", 0, p))

    trial = state(at, rows, "signed", 2)
    layout = trial.server.layout(1)
    x = np.zeros(layout.size, np.int64)
    rng = np.random.default_rng(0)
    for name, numbers in {
        "total of zeros": x, "total of ones below zero": x - 1, "total of the largest": x + (2**63 - 1),
        "total of the least": x + np.iinfo(np.int64).min, "random total": rng.integers(-(2**62), 2**62, layout.size),
        "a total of other length": x[:-1], "an empty total": x[:0],
    }.items():  # fmt: skip
        tried(trial, name, lambda a=numbers: trial.post("office", "total", 1, a.tobytes()))

    trial = state(at, rows, "masked", 2)
    for _ in range(2):
        for name in SITES:
            trial.join(name)
    head = trial.server.head(1)
    size = 8 * trial.agreed.space["dim"] * len(trial.agreed.classes)
    arrays = {
        "of no arrays": {}, "of a list": [bytes(size)], "of unknown arrays": {"x": bytes(8)},
        "weights are a number": {"weights": 7}, "weights empty": {"weights": b""},
        "weights short": {"weights": bytes(8)}, "no name": {1: bytes(size)},
        "weights zero": {"weights": bytes(size)}, "weights NaN": {"weights": b"\xff" * size},
        "weights inf": {"weights": struct.pack("<d", float("inf")) * (size // 8)},
    }  # fmt: skip
    heads = {what: msgpack.encode(one) for what, one in arrays.items()}
    heads |= {
        "empty": b"", "of no type": b"\xc1", "a number": b"\x07", "nested deeply": b"\x91" * 300,
        "and more": heads["weights zero"] + b"\x80", "JSON": b'["weights"]\n' + bytes(size),
    }  # fmt: skip
    for name, payload in heads.items():
        tried(trial, f"head {name}", lambda p=payload: trial.post("office", "head", 2, p))
    premise(head.phase() is not None, "north has the first head")
    premise(trial.play(), "with the honest messages the session ends")
    if crashes:
        return True, f"{len(crashes)} of {n} messages end in a traceback: {', '.join(crashes)}"
    return False, f"all {n} bad messages end in a message, or are waited for anew"


if __name__ == "__main__":
    run(main)
