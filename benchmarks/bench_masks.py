"""Masks: seconds and bytes of a client and of the server, beside the plain steps.

python benchmarks/bench_masks.py [CLIENTS] [DIM] [ROWS]

Defaults: 100 clients × 820,000 numbers (d = 1,280, 10 classes), 500 rows a client; 10 of them drop
out after their offer. Everything goes through files, as the commands do; what a process needs to
start is left out on both sides.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import alternately, command, machine

import afltool
from afltool.privacy import masking
from afltool.privacy.masking import CHUNK, add_streams
from afltool.privacy.offers import Offers
from afltool.privacy.protection import keys_in
from afltool.privacy.roster import load
from afltool.privacy.rounds import RoundFolder
from afltool.stages.inspect import info


def timed(work: Callable[[], object]) -> float:
    """Seconds of processors."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def size(path: Path) -> float:
    """Megabytes of a file."""
    return path.stat().st_size / 1e6


def main(clients: int = 100, dim: int = 1280, rows: int = 500) -> None:
    print(f"{machine()}; seconds of processors unless they are on the clock")
    with tempfile.TemporaryDirectory() as name:
        at = Path(name)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((rows * clients, dim), np.float32)
        np.savez(at / "x.npz", x=x, y=np.arange(len(x)) % 10)
        train = afltool.import_embeddings(at / "x.npz", at / "train.h5")
        dealt = afltool.partition(train, at / "p.h5", scheme="iid", clients=clients)
        site = afltool.import_embeddings(first(at, x, rows), at / "0.h5")
        measure(at, train, dealt, site, clients)


def first(at: Path, x: np.ndarray, rows: int) -> Path:
    np.savez(at / "0.npz", x=x[:rows], y=np.arange(rows) % 10)
    return at / "0.npz"


def measure(at: Path, train: Path, dealt: Path, site: Path, clients: int) -> None:
    head = afltool.head("linear", at / "head0.h5")
    keys = at / "keys"
    public = afltool.keys([str(i) for i in range(clients)], keys)
    adding = afltool.keys(["server"], at / "server")[0]  # who adds up
    roster = afltool.roster(public, at / "roster.json", head=str(head), server=adding)
    one = timed(lambda: afltool.mask_offer(roster, at / "offers", key=keys / "0.key"))
    offer = at / "offers" / "offer-0.json"
    print(f"offer: {one:.3f} s a client, {size(offer):.3f} MB up, {clients * size(offer):.2f} down")
    afltool.mask_offer(roster, at / "offers", key=keys)

    both = {"roster": roster, "offers": (at / "offers",)}
    mask = {"sign": keys / "0.key", "roster": roster, "mask": (at / "offers",)}

    def stats(out: str, **protection: object) -> Path:
        return afltool.local_stats(site, head, at / out, client="0", overwrite=True, **protection)

    for what, clock in (("on the clock", time.perf_counter), ("of processors", time.process_time)):
        plain, masked = alternately(
            lambda: stats("one"), lambda: stats("other", **mask), repeats=5, clock=clock
        )
        print(
            f"local-stats: {plain:.3f} s {what} plain, {masked:.3f} s under masks "
            f"({masked / plain:.1f} times)"
        )
    a, b = stats("one"), stats("other", **mask)
    of_a_client = ["local-stats", site, "--client", "0", "--head", head, "--overwrite", "-o"]
    hidden = ["--sign", keys / "0.key", "--roster", roster, "--mask", at / "offers"]
    both_ways = [command(*of_a_client, a.parent), command(*of_a_client, b.parent, *hidden)]
    print(
        "the command with the start of Python, seconds of processors: "
        f"{both_ways[0].cpu:.2f} plain, {both_ways[1].cpu:.2f} under masks"
    )
    print(f"a client's file: {size(a):.2f} MB plain, {size(b):.2f} MB under masks")
    streams(at, b)

    for path in (at / "other", at / "one"):
        for file in path.glob("*.h5"):
            file.unlink()
    # The dealt clients are others than the site above, with the same keys: a round of their own.
    roster = afltool.roster(public, at / "roster2.json", head=str(head), server=adding)
    afltool.mask_offer(roster, at / "offers2", key=keys)
    both = {"roster": roster, "offers": (at / "offers2",)}
    afltool.local_stats(train, head, at / "plain", partition=dealt)
    afltool.local_stats(
        train, head, at / "masked", partition=dealt, sign=keys, roster=roster,
        mask=(at / "offers2",), only=f"0-{clients - clients // 10 - 1}",
    )  # fmt: skip
    server(at, keys, both, clients)


def key_streams(count: int, members: int) -> float:
    """Processor seconds of OpenSSL's AES alone, for the streams of one member: the floor."""
    chunk = 8 * CHUNK
    zeros, out = bytes(chunk), bytearray(chunk)
    ciphers = [masking.aes256(bytes([k % 256]) * 32, 0) for k in range(members)]

    def once() -> None:
        for _ in range(0, count, CHUNK):
            for cipher in ciphers:
                cipher.update_into(zeros, out)

    return alternately(once, repeats=5, clock=time.process_time)[0]


def streams(at: Path, file: Path) -> None:
    """How fast a mask is made and added, beside memory."""
    from afltool.files.masked import load_masked

    arrays = load_masked(file)
    words = masking.flat(arrays)
    count = sum(len(w) for w in words)
    seconds = alternately(
        lambda: add_streams([(b"k" * 32, False)], words), lambda: [w + w for w in words], repeats=5
    )
    print(
        f"one mask of {count:,} numbers: {seconds[0] * 1e3:.1f} ms "
        f"({8 * count / seconds[0] / 1e9:.2f} GB/s); adding two such arrays {seconds[1] * 1e3:.1f}"
    )
    roster = load(at / "roster.json")
    near = len(roster.neighbours(roster.members[0].name))
    alone = key_streams(count, near + 1)
    print(f"AES-256 of {near + 1} such streams, nothing else: {alone:.3f} s of processors")
    me = keys_in(at / "keys" / "0.key")[0]
    offers = Offers.load(roster, [at / "offers"])
    secrets = RoundFolder.of(roster, me).secrets()
    others = sorted(roster.neighbours(me.name))
    agreed = timed(lambda: [masking.pair_key(offers, secrets.mask_key, me.name, n) for n in others])
    opened = timed(lambda: offers.check_all(me))
    n = len(offers.by_member)
    print(f"{near} keys agreed on in {agreed:.3f} s, {n} shares opened in {opened:.3f} s")


def server(at: Path, keys: Path, both: dict, clients: int) -> None:
    stayed = sorted((at / "masked").glob("*.h5"))
    names = {f.name for f in stayed}
    adding = {**both, "key": at / "server" / "server.key"}
    same = [f for f in sorted((at / "plain").glob("*.h5")) if f.name in names]
    summed = timed(lambda: afltool.aggregate(same, at / "plain.h5"))
    asked = timed(lambda: afltool.aggregate(stayed, at / "total.h5", **adding))
    request = at / "total.request.json"
    answer = timed(lambda: afltool.mask_reveal(request, at / "reveals", key=keys / "0.key", **both))
    afltool.mask_reveal(request, at / "reveals", key=keys, **both)
    total = timed(
        lambda: afltool.aggregate(stayed, at / "total.h5", reveal=(at / "reveals",), **adding)
    )
    assert info(at / "total.h5")["digest"] == info(at / "plain.h5")["digest"]
    print(
        f"aggregate of {len(stayed)} of {clients} clients: {summed:.2f} s plain; under masks "
        f"{asked:.2f} s to ask and {total:.2f} s to add up and open "
        f"({(asked + total) / summed:.1f} times); the same digest"
    )
    print(
        f"reveal: {answer:.3f} s a client; request {size(request):.3f} MB, answer "
        f"{size(next((at / 'reveals').iterdir())):.3f} MB"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
