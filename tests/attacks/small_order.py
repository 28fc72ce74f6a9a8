"""adapted: signed JSON public files → ssh-ed25519 lines and session.json; seals → messages.

Malicious member (or outsider): a public key of small order, under which anybody can sign.

Shows: the Ed25519 key that is the neutral element verifies the signature (R = neutral, S = 0) of
every text, so a member with such a key can deny all that it signed, and any outsider signs for it.
Tried are all encodings of points of small order, also those that are not canonical, keys with a
part of small order, and X25519 keys of small order in messages.
Must hold: such keys are refused when a public file or a session is read, and in offers.
"""

import base64
import struct

from base import SITES, Agreement, Trial, json, keys, of_sites, outcome, premise, run

from afltool.federation.masking import FIRST, Offer, offer_size

P = 2**255 - 19
SMALL = [
    0,
    1,
    P - 1,
    P,
    P + 1,
    2707385501144840649318225287225658788936804267575313519463743609750303402022,  # order 8
    55188659117513257062467267217118295137698188065244968500265048394206261417927,  # order 8
]
ENCODED = [((y | sign << 255).to_bytes(32, "little")) for y in SMALL for sign in (0, 1)]
D = -121665 * pow(121666, -1, P) % P
X25519 = [0, 1, P - 1, P, P + 1,
          325606250916557431795983626356110631294008115727848805560023387167927233504,
          39382357235489614581723060781553021112529911719440698176882885853963445705823]  # fmt: skip


def point(encoded):
    y = int.from_bytes(encoded, "little") & (2**255 - 1)
    sign = encoded[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (P - x if x & 1 != sign else x), y


def added(a, b):
    (x, y), (u, v) = a, b
    t = D * x * u * y * v
    return ((x * v + u * y) * pow(1 + t, -1, P) % P, (y * v + x * u) * pow(1 - t, -1, P) % P)


def encode(a):
    return (a[1] | (a[0] & 1) << 255).to_bytes(32, "little")


def line(key, name):
    blob = b"".join(struct.pack(">I", len(p)) + p for p in (b"ssh-ed25519", key))
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {name}\n"


def anybody_signs(key):
    """Whether a signature without a private key verifies for some text."""
    party = object.__new__(keys.Party)
    vars(party).update(name="x", key=key.hex())
    return any(party.has_signed(R + bytes(32), b"text %d" % n) for R in ENCODED for n in range(8))


def main(at):
    trial = Trial(at, of_sites(at / "rows"))
    open_ = [k for k in ENCODED if anybody_signs(k)]
    print(f"{len(open_)} of {len(ENCODED)} encodings verify a signature that nobody made")
    premise(open_, "the library itself accepts such signatures: the refusal is the program's")
    honest = point(bytes.fromhex(trial.agreed.members[0].key))
    premise(encode(honest).hex() == trial.agreed.members[0].key, "points are computed right")
    mixed = [encode(added(honest, point(ENCODED[i]))) for i in (0, 4, 10, 12)]
    accepted, body = [], json.loads(trial.agreed.text)
    for key in (*ENCODED, *mixed):
        path = at / "small.pub"
        path.write_text(line(key, "west"))
        kind, _ = outcome(lambda p=path: keys.load_public(p))
        if kind != "stops":
            accepted.append(f"a public file of {key.hex()[:12]}: {kind}")
        people = [{**p, "key": key.hex()} if p["name"] == "west" else p for p in body["members"]]
        data = json.dumps({**body, "members": people}, indent=1, sort_keys=True, ensure_ascii=False)
        kind, _ = outcome(lambda d=data: Agreement.parse(d.encode()))
        if kind != "stops":
            accepted.append(f"a session with {key.hex()[:12]}: {kind}")
    for name in SITES:
        outcome(lambda n=name: trial.serve() and trial.join(n))
    size, good = offer_size(trial.agreed), trial.opened("west", "hello", 0, "west")[32:]
    for u in X25519:
        for high in (0, 1):
            key = (u | high << 255).to_bytes(32, "little")
            for offer in (key + good[32:], good[:64] + key + good[FIRST:]):
                premise(len(offer) == size, "an offer")
                kind, _ = outcome(lambda o=offer: Offer.of(trial.agreed, 1, "west", o))
                if kind != "stops":
                    accepted.append(f"an offer with {key.hex()[:12]}: {kind}")
    print("accepted:", accepted or "none")
    kind, _ = outcome(lambda: Offer.of(trial.agreed, 1, "west", good))
    premise(kind == "waits", "an honest offer is taken")
    if accepted:
        return True, f"{len(accepted)} keys of small order are accepted, and anybody signs for them"
    return False, "no key of small order is accepted"


if __name__ == "__main__":
    run(main)
