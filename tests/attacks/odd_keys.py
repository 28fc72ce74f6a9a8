"""new: keys that somebody else has made, and passphrases that are none.

Outsider, or a careless hand: sends key files of every kind, leaves the first line of a passphrase
empty, puts NAME.pub where a key is to be made.

Shows: 14 public keys and 5 private ones that are no Ed25519 keys (other types, unknown ciphers and
derivations, certificates, points of small order, escape codes); a passphrase file whose first line
is empty, with which the key would be written without any; a NAME.pub that is there already.
Must hold: each ends in words and writes nothing; a key that was to have a passphrase has one.
"""

import base64
import struct

from base import Trial, afl, crashed, of_sites, outcome, premise, run

from afltool.federation import keys


def packed(*parts):
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def public(kind, *parts, name="eve"):
    return f"{kind} {base64.b64encode(packed(kind.encode(), *parts)).decode()} {name}\n"


def private(cipher, derivation):
    inner = packed(packed(b"ssh-ed25519") + packed(bytes(32)), bytes(64))
    data = b"openssh-key-v1\0" + packed(cipher, derivation, b"") + struct.pack(">I", 1) + inner
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n"


PUBLIC = {
    "unknown": public("ssh-foo", bytes(32)), "short": public("ssh-ed25519", bytes(5)),
    "token": public("sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:"),
    "dss": public("ssh-dss", b"\1", b"\1", b"\1", b"\1"), "rsa": public("ssh-rsa", b"\1", b"\3"),
    "curve": public("ecdsa-sha2-nistp256", b"nistp999", b"\4" * 65),
    "certificate": public("ssh-ed25519-cert-v01@openssh.com", bytes(32), bytes(32)),
    "small order": public("ssh-ed25519", bytes(32)),
    "no point": public("ssh-ed25519", (2**255 - 19).to_bytes(32, "little")),
    "codes": public("ssh-ed25519", b"\7" * 32, name="\x1b[31mred"),
    "two": public("ssh-ed25519", b"\7" * 32) * 2, "base64": "ssh-ed25519 !!!! eve\n",
    "a word": "a", "nothing": "",
}  # fmt: skip
PRIVATE = {
    "cipher": private(b"rot13", b"bcrypt"), "derivation": private(b"aes256-ctr", b"md5"),
    "rubbish": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "nothing": "",
    "pem": "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n",
}  # fmt: skip


def main(at):
    rows = of_sites(at / "rows")
    trial, folder, broken = Trial(at, rows), at / "k", []
    folder.mkdir()
    for what, text in PUBLIC.items():
        path = folder / "x.pub"
        path.write_text(text)
        done = afl("session", "new", "--members", path, "--server", trial.keys / "office.pub",
                   "--data", rows["north"], "--max-rows", 99, "-o", at / "out", ok=False)  # fmt: skip
        print(f"public, {what}: {done.returncode} {done.said.strip()[-100:]!r}")
        if crashed(done) or "\x1b" in done.said or (at / "out").exists():
            broken.append(what)
    (folder / "y.pub").write_bytes((trial.keys / "north.pub").read_bytes())
    for what, text in PRIVATE.items():
        path = folder / "y"
        path.write_text(text)
        path.chmod(0o600)
        kind, said = outcome(lambda path=path: str(keys.load(path)))
        print(f"private, {what}: {kind} {said[-100:]!r}")
        if kind != "stops":
            broken.append(what)
    for what, line in {"empty": b"\nsecret\n", "none": b"", "good": b"secret\n"}.items():
        (folder / "pass").write_bytes(line)
        done = afl(
            "keys", "new", what, "-o", folder, "--passphrase-file", folder / "pass", ok=False
        )
        opens = (folder / what).exists() and outcome(lambda w=what: str(keys.load(folder / w)))
        print(f"passphrase, {what}: {done.returncode} {done.said.strip()[-80:]!r}; {opens}")
        if opens and opens[0] == "waits":
            broken.append(f"a key without its passphrase: {what}")
    premise(str(keys.load(folder / "good", b"secret")), "a good one opens")
    (folder / "z.pub").write_text("of somebody else")
    done = afl("keys", "new", "z", "-o", folder, ok=False)
    if crashed(done) or (folder / "z").exists() or done.returncode == 0:
        broken.append("half a pair of keys")
    if broken:
        return True, f"no words, or half a result: {broken}"
    return False, f"{len(PUBLIC) + len(PRIVATE)} odd keys and an empty passphrase are refused"


if __name__ == "__main__":
    run(main)
