"""Shares, keys, rosters and masks as functions: what they promise, and what they refuse."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from federations import LOW, SERVER, Federation, locked, new_roster, save, statistics_of
from hypothesis import given
from hypothesis import strategies as st
from problems import total
from scipy.stats import chisquare

import afltool
from afltool.errors import (
    AflError,
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    NumericalError,
    OutputExistsError,
    UsageError,
)
from afltool.files.atomic import write_once
from afltool.files.schema import mismatch
from afltool.privacy import identity, masking, messages, reveal, roster, shamir
from afltool.privacy.masking import CHUNK, SEGMENT, TOGETHER, add_streams
from afltool.privacy.offers import OF_ROUND, OF_ROUND_2, SEALED_BYTES, Offers
from afltool.privacy.reveal import Request
from afltool.values.names import Phase
from afltool.values.statistics import Statistics

GOLDEN = Path(__file__).parent / "golden"

# ---------------------------------------------------------------- Shamir

ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493


def little(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "little")


# RFC 9591, appendix E.1: FROST(Ed25519, SHA-512), 2 of 3.
SECRET = little("7b1c33d3f5291d85de664833beb1ad469f7fb6025a0ec78b3a790c6e13a98304")
COEFFICIENT = little("178199860edd8c62f5212ee91eff1295d0d670ab4ed4506866bae57e7030b204")
SHARES = [
    little("929dcc590407aae7d388761cddb0c0db6f5627aea8e217f4a033f2ec83d93509"),
    little("a91e66e012e4364ac9aaa405fcafd370402d9859f7b6685c07eed76bf409e80d"),
    little("d3cb090a075eb154e82fdb4b3cb507f110040905468bb9c46da8bdea643a9a02"),
]


def test_shares_of_rfc_9591():
    assert shamir.evaluate([SECRET, COEFFICIENT], 3, ED25519_ORDER) == SHARES
    for i, j in itertools.permutations(range(3), 2):
        factors = shamir.weights([i + 1, j + 1], ED25519_ORDER)
        assert shamir.join(factors, [SHARES[i], SHARES[j]], ED25519_ORDER) == SECRET


def test_shares_of_wikipedias_example():
    assert shamir.evaluate([1234, 166, 94], 6, 1613) == [1494, 329, 965, 176, 1188, 775]
    factors = shamir.weights([2, 4, 5], 1613)
    assert shamir.join(factors, [329, 176, 1188], 1613) == 1234


@given(st.integers(0, 2**256 - 1), st.integers(1, 6), st.integers(0, 4), st.randoms())
def test_any_threshold_of_the_shares_gives_the_secret(secret, threshold, more, random):
    shares = shamir.split(secret, threshold, threshold + more)
    places = random.sample(range(1, threshold + more + 1), threshold)
    chosen = [shares[x - 1] for x in places]
    assert shamir.join(shamir.weights(places), chosen) == secret
    if threshold > 1:  # one fewer gives something else (but for chance, 2^-256)
        assert shamir.join(shamir.weights(places[:-1]), chosen[:-1]) != secret


def test_fewer_shares_than_the_threshold_tell_nothing():
    """Over a small field: each single share of 2 of 3 takes every value equally often."""
    counts = np.zeros((2, 11), int)
    for secret in (0, 1):
        for _ in range(2000):
            counts[secret, shamir.split(secret, 2, 3, 11)[0]] += 1
    assert chisquare(counts[0]).pvalue > 1e-6
    assert chisquare(counts[1]).pvalue > 1e-6


def test_the_prime_is_prime():
    p, n = shamir.PRIME, 60
    rng = np.random.default_rng(0)
    d, s = p - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for _ in range(n):  # Miller and Rabin
        x = pow(int(rng.integers(2, 2**62)), d, p)
        squares = [pow(x, 2**i, p) for i in range(s)]
        assert x == 1 or p - 1 in squares


# ---------------------------------------------------------------- keys


def test_keys_come_back_from_their_files(tmp_path):
    one = identity.Identity.new("Zürich/2")
    private, public = save(one, tmp_path)
    assert private.stat().st_mode & 0o777 == 0o600
    assert identity.load(private).member == identity.load_public(public) == one.member
    assert identity.load(private).private_key("x") == one.private_key("x") != one.private_key("y")


def test_a_private_key_is_never_replaced(tmp_path):
    private, _ = save(identity.Identity.new("a"), tmp_path)
    before = private.read_bytes()
    with pytest.raises(UsageError, match="never replaced"):
        save(identity.Identity.new("a"), tmp_path)
    assert private.read_bytes() == before


def test_a_passphrase_locks_the_private_file(tmp_path):
    one = identity.Identity.new("a")
    private, _ = save(one, tmp_path, b"horse")
    text = private.read_text()
    assert one.agreeing.private_bytes_raw().hex() not in text
    assert "PRIVATE KEY" not in text
    cost = json.loads(text)["scrypt"]
    assert cost == {"n": 2**17, "r": 8, "p": 1, "salt": cost["salt"]}
    with pytest.raises(UsageError, match="needs a passphrase"):
        identity.load(private)


def test_no_field_of_a_locked_key_can_be_altered(tmp_path):
    """The name is not secret, but under the same seal; a copy for another member is refused."""
    one, path = identity.Identity.new("a"), tmp_path / "a.key"
    assert identity.load(locked(path, one, b"horse"), b"horse").member == one.member
    with pytest.raises(InputError, match="passphrase or the file is wrong"):
        identity.load(path, b"cow")
    found = json.loads(path.read_text())
    for changed in (
        {"name": "b"}, {"sealed": found["sealed"][:-2] + "00"},
        {"scrypt": {**found["scrypt"], "salt": "00" * 16}},
    ):  # fmt: skip
        with pytest.raises(InputError, match="passphrase or the file is wrong"):
            identity.load(locked(path, one, b"horse", **changed), b"horse")


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 2**30), ("n", 2**17 + 1), ("n", 2**13), ("n", True), ("r", 1024), ("p", 2**20),
     ("salt", "AB" * 16), ("more", 1)],
)  # fmt: skip
def test_a_forged_key_file_cannot_ask_for_memory_or_time(tmp_path, field, value):
    one, path = identity.Identity.new("a"), tmp_path / "a.key"
    cost = {**LOW, "salt": "ab" * 16, field: value}
    with pytest.raises(CorruptFileError, match=f"is not a private key.*{field}"):
        identity.load(locked(path, one, b"horse", scrypt=cost), b"horse")


def test_a_forged_key_in_pem_cannot_ask_for_time_either():
    """Only the 2,048 rounds that earlier versions wrote are read, not 2^31."""
    pem = json.loads((GOLDEN / "a.key").read_text())["sign"]
    identity.check_earlier(pem)
    first, *lines, last = pem.splitlines()
    der = base64.b64decode("".join(lines))
    assert der.count(b"\x02\x02\x08\x00") == 1
    more = der.replace(b"\x02\x02\x08\x00", b"\x02\x02\x7f\xff")
    with pytest.raises(ValueError, match="another way"):
        identity.check_earlier("\n".join([first, base64.b64encode(more).decode(), last]))


def test_a_key_of_an_earlier_version_is_read_and_its_passphrase_can_be_changed(tmp_path, caplog):
    old = tmp_path / "a.key"
    write_once(old, (GOLDEN / "a.key").read_bytes())
    one = identity.load(old, b"horse")
    assert one.member.agree.startswith("07a37cbc142093c8")
    assert "--passphrase-file OLD --new-passphrase-file NEW -o FOLDER" in caplog.text
    for name, word in (("old.txt", b"horse\n"), ("new.txt", b"a better horse\n")):
        (tmp_path / name).write_bytes(word)
    files = {"passphrase_file": tmp_path / "old.txt", "new_passphrase_file": tmp_path / "new.txt"}
    with caplog.at_level("INFO", "afltool"):
        new = afltool.lock_key(old, tmp_path / "new", **files)
    assert {"scrypt", "sealed"} < json.loads(new.read_text()).keys()
    assert f"mv {new} {old}" in caplog.text
    with pytest.raises(UsageError, match="never replaced"):
        afltool.lock_key(old, tmp_path, **files)


def test_a_private_file_that_others_can_read_is_refused(tmp_path):
    private, _ = save(identity.Identity.new("a"), tmp_path)
    private.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        identity.load(private)


def test_an_altered_public_file_is_refused(tmp_path):
    _, public = save(identity.Identity.new("a"), tmp_path)
    other = identity.Identity.new("b").member
    for key, value in (("agree", other.agree), ("sign", other.sign), ("name", "c")):
        found = json.loads(public.read_text())
        found["body"][key] = value
        (tmp_path / "x.pub").write_text(json.dumps(found))
        with pytest.raises(CorruptFileError, match="not signed"):
            identity.load_public(tmp_path / "x.pub")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "NaN", '{"a": 1, "a": 1}', "[" * 100_000, '{"afltool": 1.5}', "\xff"],
)
def test_what_is_no_message_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptFileError, match=r"x\.json"):
        messages.read(path, "roster", roster.PATTERN)


def test_a_message_is_written_once_or_refused(tmp_path):
    one, two = messages.Message({"kind": "a"}), messages.Message({"kind": "b"})
    path = messages.write(tmp_path / "m.json", one)
    assert messages.write(path, one) == path
    with pytest.raises(OutputExistsError):
        messages.write(path, two)
    messages.write(path, two, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_what_is_written_once_stays(tmp_path):
    path = tmp_path / "folder" / "used"
    assert write_once(path, b"one") == b"one"
    assert write_once(path, b"two") == b"one"


def test_a_folder_of_keys_that_others_may_write_into_is_named(tmp_path, caplog):
    for mode, warned in ((0o755, False), (0o775, True), (0o700, False)):
        tmp_path.chmod(mode)
        caplog.clear()
        afltool.keys(["a"], tmp_path)
        assert (f"chmod go-w {tmp_path}" in caplog.text) == warned


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077, 0o277])
def test_private_files_are_private_whatever_the_umask(tmp_path, umask, caplog):
    """Folders of rounds above them, too; those that an earlier version left open are closed."""
    before = os.umask(umask)
    try:
        federation = Federation(tmp_path / "a" / "b", 2)
        found = federation.round_folder("site-0")
        found.offer()
    finally:
        os.umask(before)
    keys = tmp_path / "a" / "b" / "keys"
    modes = {p.name: p.stat().st_mode & 0o777 for p in [found.folder, *found.folder.parents][:4]}
    assert set(modes.values()) == {0o700}, modes
    assert (keys / "site-0.key").stat().st_mode & 0o777 == 0o600
    assert (found.folder / "secrets").stat().st_mode & 0o777 == 0o600
    found.folder.parent.chmod(0o775)
    federation.round_folder("site-0")
    assert found.folder.parent.stat().st_mode & 0o777 == 0o700
    assert "its mode was 775, is 700 now" in caplog.text


# ---------------------------------------------------------------- rosters


def test_a_roster_comes_back_and_two_rounds_differ(tmp_path):
    members = Federation(tmp_path, 4).roster.members
    a, b = (new_roster(members) for _ in range(2))
    assert roster.load(messages.write(tmp_path / "r.json", messages.Message(a.as_dict()))) == a
    assert a.digest != b.digest
    assert a.threshold == 3


@pytest.mark.parametrize(("n", "t"), [(4, 2), (4, 5), (5, 2), (1, 1), (4, 0)])
def test_thresholds_that_protect_nobody_are_refused(tmp_path, n, t):
    members = [identity.Identity.new(str(i)).member for i in range(n)]
    with pytest.raises(UsageError, match="threshold"):
        new_roster(members, t)


@pytest.mark.parametrize("what", ["name", "sign", "agree"])
def test_two_members_with_one_key_are_refused_by_name(tmp_path, what):
    a, b, c = (identity.Identity.new(x).member for x in "abc")
    with pytest.raises(MismatchError, match=f"'{'a' if what == 'name' else 'b'}'"):
        new_roster([a, replace(b, **{what: getattr(a, what)}), c])


def test_a_roster_file_with_one_key_twice_is_refused(tmp_path):
    made = Federation(tmp_path, 3).roster
    body = json.loads(json.dumps(made.as_dict()))
    body["members"][1]["agree"] = body["members"][0]["agree"]
    messages.write(tmp_path / "r.json", messages.Message(body))
    with pytest.raises(MismatchError, match="'site-0', 'site-1'"):
        roster.load(tmp_path / "r.json")


def test_rows_that_could_overflow_are_refused_before_anybody_masks(tmp_path):
    members = [identity.Identity.new(str(i)).member for i in range(4)]
    most = new_roster(members).max_rows
    assert 4 * most * 2**30 <= 2**63 - 1 < 4 * (most + 1) * 2**30
    with pytest.raises(NumericalError, match=f"--max-rows to {most}"):
        new_roster(members, max_rows=most + 1)


def test_unknown_fields_of_a_roster_are_refused_at_every_depth(tmp_path):
    """They would change the file, and not the digest that members compare."""
    made = messages.Message(Federation(tmp_path, 3).roster.as_dict())
    path = messages.write(tmp_path / "r.json", made)
    good = json.loads(path.read_text())
    for place in (good, good["body"], good["body"]["members"][1], good["body"]["head"]):
        place["note"] = "x"
        path.write_text(json.dumps(good))
        with pytest.raises(CorruptFileError, match="note is 'x', not absent"):
            roster.load(path)
        del place["note"]
    path.write_text(json.dumps({**good, "signature": "00" * 64}))
    with pytest.raises(CorruptFileError, match=r"signature is .*, not empty"):
        roster.load(path)
    path.write_text(json.dumps(good))
    assert roster.load(path)


def test_hexadecimal_has_one_form(tmp_path):
    """A signature or a key in capitals, or with spaces, is the same bytes in another file."""
    _, public = save(identity.Identity.new("a"), tmp_path)
    good = json.loads(public.read_text())
    signature, key = good["signature"], good["body"]["agree"]
    for other in (str.upper, " ".join, lambda text: text + "\n", lambda text: f" {text[1:]}"):
        for found in (
            {**good, "signature": other(signature)},
            {**good, "body": {**good["body"], "agree": other(key)}},
        ):
            public.write_text(json.dumps(found))
            with pytest.raises(CorruptFileError, match="hexadecimal digits"):
                identity.load_public(public)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize(
    ("begun", "wanted"),
    [
        (masking.chacha20, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1a"),
        (masking.aes256, "cea7403d4d606b6e074ec5d3baf39d18"),
    ],
)
def test_streams_are_those_of_the_standards(begun, wanted):
    """RFC 8439, appendix A.1, vector 1; McGrew and Viega's GCM, test case 14: all of zeros."""
    array = np.zeros(8, "<u8")
    add_streams([(bytes(32), False)], [array], begun)
    assert array.tobytes().hex().startswith(wanted)


def test_a_stream_of_chacha20_is_one_over_all_segments():
    """Files of rosters of version 1 have it; AES begins each segment with a nonce of its own."""
    key, n = b"k" * 32, SEGMENT + 9
    old, new = np.zeros(n, "<u8"), np.zeros(n, "<u8")
    add_streams([(key, False)], [old], masking.chacha20)
    add_streams([(key, False)], [new])
    at_once = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * n))
    assert old.tobytes() == at_once
    second = AESGCM(key).encrypt((1).to_bytes(12), bytes(72), None)
    assert new[SEGMENT:].tobytes() == second[:72]


def test_streams_go_on_over_arrays_and_blocks_and_cancel():
    whole = np.arange(2 * CHUNK + 13, dtype="<u8")
    parts = [whole[: CHUNK + 5].copy(), whole[CHUNK + 5 :].copy()]
    before = whole.copy()
    add_streams([(b"k" * 32, False)], [whole])
    np.testing.assert_array_equal(whole[: CHUNK + 5], parts[0] + (whole - before)[: CHUNK + 5])
    add_streams([(b"k" * 32, True)], [whole])
    np.testing.assert_array_equal(whole, before)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_streams_together_are_those_one_after_the_other(threads, monkeypatch):
    """Parts begin in the middle of a stream; arrays end anywhere, also within a block."""
    rng = np.random.default_rng(0)
    sizes = (3, 0, 4 * CHUNK + 5, 1, CHUNK - 1)
    one = [rng.integers(0, 2**64, n, np.uint64) for n in sizes]
    other = [a.copy() for a in one]
    keys = [bytes([k % 256, k // 256]) * 16 for k in range(TOGETHER + 3)]
    for k, key in enumerate(keys):
        add_streams([(key, k % 3 == 0)], one)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(threads))
    add_streams([(key, k % 3 == 0) for k, key in enumerate(keys)], other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- offers


def test_the_quick_look_at_shares_sees_what_the_slow_one_sees(tmp_path):
    federation = Federation(tmp_path, 3, 2)
    federation.roster = replace(federation.roster, masks=1)
    good = federation.offers().by_member["site-0"].body["shares"]
    quick = OF_ROUND["shares"]
    assert quick.test(good)
    assert mismatch(good, quick.pattern) == ""
    sealed = good[1]["sealed"]
    for share in (
        {**good[1], "sealed": sealed[:-1]}, {**good[1], "sealed": sealed[:-1] + "G"},
        {**good[1], "mask": sealed}, {**good[1], "self": 1}, {**good[1], "self": None},
        {**good[1], "mask": good[1]["mask"].upper() + ""}, {"sealed": sealed}, [], "", None,
        {**good[1], "note": ""},
        {**good[1], "mask": "٣" * 64}, {**good[1], "self": good[1]["self"][:-1] + "\n"},
    ):  # fmt: skip
        bad = [good[0], share, good[2]]
        wrong = mismatch(bad, quick.pattern, exact=True)
        assert quick.test(bad) is (wrong == "")
        assert mismatch(bad, quick, exact=True) == wrong
    assert not quick.test(None)
    good = ["".join(share.values()) for share in good]
    quick = OF_ROUND_2["shares"]
    assert quick.test(good)
    for text in (good[1][:-1], good[1][:-1] + "G", good[1].upper(), 1, None, "٣" * 292, ""):
        bad = [good[0], text, good[2]]
        assert not quick.test(bad)
        assert mismatch(bad, quick)


# ---------------------------------------------------------------- masks


def test_the_total_is_that_without_masks_for_every_set_of_drop_outs(tmp_path):
    """5 members, threshold 3: all sets that drop out before and after their offer, two orders."""
    federation = Federation(tmp_path, 5, 3)
    rng = np.random.default_rng(0)
    found = {n: statistics_of(rng) for n in federation.me}
    names, tried = list(federation.me), 0
    for offering in (c for k in (3, 4, 5) for c in itertools.combinations(names, k)):
        offered = federation.offers(offering)
        for stayed in (c for k in (3, 4, 5) for c in itertools.combinations(offering, k)):
            wanted = total(found[n] for n in stayed).digest()
            for order in (list, lambda x: list(reversed(x))):
                got = federation.sum_under_masks(offered, found, stayed, order=order)
                assert got.digest() == wanted
                tried += 1
    assert tried == 2 * (10 + 5 * 5 + 16)


def test_below_the_threshold_there_is_no_request(tmp_path):
    federation = Federation(tmp_path, 5, 4)
    offered = federation.offers()
    with pytest.raises(MismatchError, match=r"3 of 5 members.*'site-3', 'site-4'"):
        federation.request(offered, ["site-0", "site-1", "site-2"])


def test_too_few_answers_are_refused(tmp_path):
    federation = Federation(tmp_path, 3)
    request = federation.request(federation.offers(), list(federation.me))
    answers = federation.opened(
        request, [reveal.reveal(request, federation.me[n]) for n in ("site-0", "site-1")]
    )
    with pytest.raises(MismatchError, match="'site-2'"):
        reveal.secrets_of(request, answers)


def test_a_late_message_of_a_dropped_member_stays_unreadable(tmp_path):
    """With its pairwise masks open, the self-mask still hides it; no answer gives both away."""
    federation = Federation(tmp_path, 3, 2)
    offered = federation.offers()
    request = federation.request(offered, ["site-0", "site-1"])
    answers = [reveal.reveal(request, federation.me[n]) for n in request.survivors]
    assert request.kind("site-2") == "mask"
    found = reveal.secrets_of(request, federation.opened(request, answers))
    late = federation.masked(offered, "site-2", zeros(30_000))
    words = masking.flat(late)
    gone = X25519PrivateKey.from_private_bytes(found["site-2"])
    for other in ("site-0", "site-1"):
        key = masking.pair_key(offered, gone, "site-2", other)
        add_streams([masking.pair_stream(key, "site-2", other, subtract=True)], words)
    assert np.count_nonzero(words[1] == 0) == 0  # numbers that were all 0
    histogram = np.bincount(np.concatenate(words).view(np.uint8), minlength=256)
    assert chisquare(histogram).pvalue > 1e-6


def zeros(n: int) -> Statistics:
    return Statistics(Phase("gram"), {"gram": np.zeros(n, np.int64)}, np.zeros(2, np.int64))


def test_a_masked_message_alone_looks_uniform(tmp_path):
    """Bytes' chi-square, and no correlation with the numbers over 1,000 rounds."""
    federation = Federation(tmp_path, 2)
    one = statistics_of(np.random.default_rng(1), d=12)
    truth = np.concatenate([one.arrays["cross"].ravel(), one.arrays["gram"]]).astype(float)
    bytes_seen, dots = np.zeros(256, int), []
    offered = federation.offers()
    drawn = federation.round_folder("site-0").secrets()
    for _ in range(1000):
        fresh = replace(drawn, mask=os.urandom(32), self=os.urandom(32))
        arrays = masking.plain(federation.roster, "site-0", one)
        masking.mask(offered, "site-0", fresh, arrays)
        words = np.concatenate(masking.flat(arrays)[1:])[: len(truth)]
        bytes_seen += np.bincount(words.view(np.uint8), minlength=256)
        dots.append(np.corrcoef(words.view(np.int64).astype(float), truth)[0, 1])
    assert chisquare(bytes_seen).pvalue > 1e-6
    z = np.mean(dots) / (np.std(dots) / np.sqrt(len(dots)))
    assert abs(z) < 5


def test_whole_messages_of_rounds_of_the_same_data_share_nothing(tmp_path):
    one = statistics_of(np.random.default_rng(2), d=40)
    seen = []
    for name in "ab":
        federation = Federation(tmp_path / name, 3)
        offered = federation.offers()
        seen.append(federation.masked(offered, "site-0", one))
    same = [np.count_nonzero(seen[0][k] == seen[1][k]) for k in seen[0]]
    assert sum(same) == 0
    difference = seen[0]["gram"] - seen[1]["gram"]
    assert chisquare(np.bincount(difference.view(np.uint8), minlength=256)).pvalue > 1e-6


def test_the_same_step_again_gives_the_same_bytes_and_another_use_is_refused(tmp_path):
    federation = Federation(tmp_path, 3)
    folder = federation.round_folder("site-0")
    assert folder.offer() == folder.offer() == folder.secrets().offer
    folder.once("used", {"message": "a"}, "used before")
    folder.once("used", {"message": "a"}, "used before")
    with pytest.raises(MismatchError, match="used before"):
        folder.once("used", {"message": "b"}, "used before")
    other = Federation(tmp_path / "other", 3)
    with pytest.raises(MismatchError, match="mask offer comes first"):
        other.round_folder("site-1").secrets()


def test_the_secrets_of_a_round_are_locked_with_the_key(tmp_path):
    federation = Federation(tmp_path, 3)
    drawn = federation.drawn("site-0")
    path = federation.round_folder("site-0").folder / "secrets"
    data = path.read_bytes()
    for secret in (drawn.mask, drawn.self):
        assert secret not in data
        assert secret.hex().encode() not in data
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match="damaged"):
        federation.round_folder("site-0").secrets()


def test_numbers_beyond_the_bound_are_refused_before_masking(tmp_path):
    federation = Federation(tmp_path, 3)
    limit = federation.roster.limit
    assert 3 * limit <= 2**63 - 1
    good = zeros(1)
    good.arrays["gram"][0] = -limit
    masking.plain(federation.roster, "site-0", good)
    good.arrays["gram"][0] = limit + 1
    with pytest.raises(NumericalError, match=f"'gram' of 'site-0'.*{limit}"):
        masking.plain(federation.roster, "site-0", good)
    many = Statistics(Phase("gram"), {}, np.array([federation.roster.max_rows + 1]))
    with pytest.raises(InvalidDataError, match="--max-rows"):
        masking.plain(federation.roster, "site-0", many)
    real = Statistics(Phase("gram"), {"gram": np.zeros(2)}, np.zeros(1, np.int64))
    with pytest.raises(InvalidDataError, match="integers"):
        masking.plain(federation.roster, "site-0", real)


def test_a_sum_that_no_honest_members_make_is_refused():
    total = {"gram": np.array([2**63], "<u8"), "class_counts": np.array([1], "<u8")}
    with pytest.raises(NumericalError, match="makes no sense"):
        masking.as_integers(total, 2**62)


# ---------------------------------------------------------------- tampering, by name


def altered(message, **changes):
    return replace(message, body={**message.body, **changes})


def offers_from(tmp_path, federation, made):
    folder = tmp_path / "offers"
    folder.mkdir(exist_ok=True)
    for i, offer in enumerate(made):
        messages.write(folder / f"{i}.json", offer, overwrite=True)
    return Offers.load(federation.roster, [folder])


def test_altered_strange_and_double_offers_are_refused_by_name(tmp_path):
    federation, other = Federation(tmp_path, 3), Federation(tmp_path / "other", 3)
    made = list(federation.offers().by_member.values())
    assert offers_from(tmp_path, federation, made).digest == federation.offers().digest
    with pytest.raises(CorruptFileError, match="not signed by 'site-1'"):
        offers_from(tmp_path, federation, [made[0], altered(made[1], mask_key="00" * 32), made[2]])
    with pytest.raises(MismatchError, match="'site-1' belongs to the roster"):
        offers_from(tmp_path, federation, [made[0], other.offers().by_member["site-1"], made[2]])
    stranger = identity.Identity.new("eve").sign({**made[1].body, "member": "eve"})
    with pytest.raises(MismatchError, match="'eve', who is not among"):
        offers_from(tmp_path, federation, [made[0], stranger, made[2]])
    second = federation.me["site-0"].sign({**made[0].body, "share_key": made[1].body["share_key"]})
    with pytest.raises(MismatchError, match="'site-0' has made two different offers"):
        offers_from(tmp_path, federation, [made[0], second, made[2]])


def test_shares_that_do_not_open_are_refused_before_masking(tmp_path):
    federation = Federation(tmp_path, 3)
    offered = federation.offers()
    offered.check_all(federation.me["site-1"])
    body = offered.by_member["site-0"].body
    shares, sealed = list(body["shares"]), 2 * SEALED_BYTES
    shares[1] = shares[0][:sealed] + shares[1][sealed:]  # encrypted for another holder
    bad = dict(offered.by_member)
    bad["site-0"] = federation.me["site-0"].sign({**body, "shares": shares})
    with pytest.raises(CorruptFileError, match="offer of 'site-0'"):
        Offers(federation.roster, bad).check_all(federation.me["site-1"])
    shares[1] = body["shares"][1][:sealed] + "00" * 64  # committed to something else
    bad["site-0"] = federation.me["site-0"].sign({**body, "shares": shares})
    with pytest.raises(CorruptFileError, match="'site-0' gave a share"):
        Offers(federation.roster, bad).check_all(federation.me["site-1"])


def test_reveals_that_lie_are_refused_by_name(tmp_path):
    federation = Federation(tmp_path, 4, 3)
    offered = federation.offers()
    request = federation.request(offered, ["site-0", "site-1", "site-2"])
    good = {n: reveal.reveal(request, federation.me[n]) for n in request.survivors}

    def load(*given):
        return federation.opened(request, given)

    assert load(*good.values()).keys() == good.keys()
    assert load(good["site-0"], good["site-0"]).keys() == {"site-0"}
    one, me = good["site-1"], federation.me["site-1"]
    with pytest.raises(CorruptFileError, match="not signed by 'site-1'"):
        load(altered(one, sealed=good["site-0"].body["sealed"]))
    for field in ("sealed", "key"):
        with pytest.raises(CorruptFileError, match="answer of 'site-1' cannot be decrypted"):
            load(me.sign({**one.body, field: good["site-0"].body[field]}))
    with pytest.raises(CorruptFileError, match="a public key of 'site-1' is invalid"):
        load(me.sign({**one.body, "key": "00" * 32}))
    shares = [offered.open(giver, me)[request.kind(giver)] for giver in offered.by_member]
    assert load(reveal.sealed(request, me, b"".join(shares))) == load(one)
    with pytest.raises(CorruptFileError, match="'site-1' gave a share of the self secret"):
        load(reveal.sealed(request, me, b"".join([b"\x01" * 33, *shares[1:]])))
    with pytest.raises(CorruptFileError, match="'site-1' does not hold a share of each member"):
        load(reveal.sealed(request, me, b"".join(shares[1:])))
    other = federation.request(offered, ["site-0", "site-1", "site-3"])
    with pytest.raises(MismatchError, match="'site-1' answers another request"):
        load(reveal.reveal(other, federation.me["site-1"]))
    with pytest.raises(MismatchError, match="counts 'site-3' as dropped out"):
        reveal.reveal(request, federation.me["site-3"])


def test_a_dealer_whose_shares_make_nothing_is_named(tmp_path):
    """Shares of another secret, each as committed: found when the secret is put together."""
    federation = Federation(tmp_path, 3, 2)
    cheat = federation.round_folder("site-2")
    drawn = federation.drawn("site-2")
    path = cheat.folder / "secrets"
    lying = federation.me["site-2"].sign({**drawn.offer.body, "self_commitment": "00" * 32})
    path.unlink()
    keys = {"mask": drawn.mask.hex(), "self": drawn.self.hex()}
    write_once(path, cheat.me.lock({**keys, "offer": lying.as_dict()}, "secrets"))
    offered = federation.offers()
    request = federation.request(offered, list(federation.me))
    answers = [reveal.reveal(request, me) for me in federation.me.values()]
    opened = federation.opened(request, answers)
    with pytest.raises(CorruptFileError, match="'site-2' broke the rules"):
        reveal.secrets_of(request, opened)


def test_requests_with_forged_or_foreign_seals_are_refused_by_name(tmp_path):
    federation = Federation(tmp_path, 4, 3)
    offered = federation.offers()
    names = ["site-0", "site-1", "site-2"]
    path = messages.write(tmp_path / "q.json", federation.request(offered, names).message(SERVER))
    assert Request.load(path, offered).survivors == names
    seals = {n: federation.seal(offered, n) for n in names}
    fewer = federation.offers(names)
    for bad, what in (
        ({**seals, "site-1": altered(seals["site-1"], header="00" * 32)}, "not signed by 'site-1'"),
        ({**seals, "site-1": federation.seal(fewer, "site-1")}, "'site-1'.*another set of offers"),
        ({**seals, "site-1": seals["site-2"]}, "'site-2', who made no offer"),
        (dict(list(seals.items())[:2]), "at least 3 must"),
    ):
        with pytest.raises(AflError, match=what):
            Request.new(offered, bad)
    with pytest.raises(MismatchError, match="another set of offers"):
        Request.load(path, fewer)


def test_secrets_are_drawn_from_the_system(tmp_path):
    """No seed, no clock: two processes that are equal in all else draw other secrets."""
    federation, found = Federation(tmp_path / "f", 2), []
    shutil.copytree(tmp_path / "f", tmp_path / "before")
    for twin in ("a", "b"):
        process = os.fork()
        if not process:
            (tmp_path / twin).write_text(repr(federation.drawn("site-0")))
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        found.append((tmp_path / twin).read_text())
        shutil.rmtree(tmp_path / "f")
        shutil.copytree(tmp_path / "before", tmp_path / "f")
    assert found[0] != found[1]
