"""What a site approves: every term is of its type, in its range, in the digest and in the words."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from msgspec import to_builtins
from parties import CLASSES, NOISE, SPACE, Federation, key_of

from afltool.errors import AflError, CorruptFileError, MismatchError, UsageError
from afltool.federation import keys as keys_
from afltool.federation import noise as noise_
from afltool.federation.agreement import Agreement, Consent
from afltool.federation.commands import format_text
from afltool.federation.compute import Layout, describe_head
from afltool.federation.noise import Noise
from afltool.heads import make_head

SCORED = {"groups": ["f", "m"], "min_cell": 5}


@pytest.fixture
def agreed(tmp_path):
    return Federation(tmp_path, n=7).agreed


def of_head(name, options):
    return to_builtins(describe_head(make_head(name, options).bind(6, 3)))


def test_wrong_code_stays_wrong(agreed, monkeypatch):
    """A code of 128 bits, each guess 128 MiB, is for one agreement; nothing that a site is told has
    the right one: it comes by telephone."""
    asked, real = [], hashlib.scrypt
    quick = {"n": 2, "r": 1, "p": 1, "salt": b""}
    monkeypatch.setattr(hashlib, "scrypt", lambda d, **how: asked.append(how) or real(d, **quick))
    agreed.check_approved(agreed.code.replace(" ", "-").upper())
    assert re.fullmatch("([0-9a-f]{4} ){7}[0-9a-f]{4}", agreed.code)
    assert 128 * asked[0]["n"] * asked[0]["r"] == 128 << 20
    signed, told = replace(agreed, protection="signed"), [format_text(agreed)]
    with pytest.raises(UsageError, match="--allow signed"):
        signed.check_approved(signed.code)
    signed.check_approved(signed.code, "signed")
    for given in ("", "1" * 32, "1" * 31, signed.code, replace(agreed, nonce="0" * 32).code):
        with pytest.raises(AflError) as error:
            agreed.check_approved(given)
        told.append(str(error.value))
    assert agreed.code.replace(" ", "")[:8] not in re.sub("[ -]", "", " ".join(told))


def test_all_terms_are_shown(agreed):
    """Each term changes the digest and the words."""
    eve, cut = key_of("eve"), agreed.members[:-1]
    other_head = of_head("linear", {"ridge": 2.0})
    others = {
        "members": cut, "server": eve.party, "head": other_head,
        "space": {**agreed.space, "backbone": "other"}, "classes": ("a", "b", "d"),
        "protection": "signed", "threshold": 6, "min_rows": 7, "max_rows": 65,
        "scale": 10, "evaluation": SCORED, "follows": "ab" * 32, "nonce": "0" * 32,
        "consents": (Consent.sign("ab" * 32, eve),), "noise": NOISE,
    }  # fmt: skip
    assert others.keys() == {f.name for f in fields(Agreement)}
    words = {format_text(agreed)}
    limits = {"noise": {"min_rows": 0, "max_rows": 0}, "members": {"threshold": 5}}
    for name, value in others.items():
        changed = replace(agreed, **{name: value, **limits.get(name, {})})
        assert changed.digest != agreed.digest
        assert format_text(changed) not in words, name
        words.add(format_text(changed))
    noisy = replace(agreed, noise=NOISE, max_rows=0)
    for key, value in {"epsilon": 2.0, "delta": 1e-6, "clip": 5.0, "colluding": 1}.items():
        assert format_text(replace(noisy, noise={**NOISE, key: value})) != format_text(noisy)
    scored = replace(agreed, evaluation=SCORED)
    for key, value in {"groups": ["f"], "min_cell": 6}.items():
        assert format_text(replace(scored, evaluation={**SCORED, key: value})) != format_text(
            scored
        )
    assert all(repr(c) in format_text(agreed) for c in CLASSES)
    key = replace(agreed, members=tuple(sorted((*cut, keys_.Party("site-06", eve.party.key)))))
    assert format_text(key) != format_text(agreed)


def test_rounds_are_those_of_the_head_itself(tmp_path):
    a = Federation(tmp_path, "softmax", n=4).agreed
    assert "3 at most: gram; gradient-1; gradient-2" in format_text(a)
    head = to_builtins(a.head)
    with pytest.raises(MismatchError, match="another first head"):
        format_text(replace(a, head={**head, "digest": "ab" * 32}))
    with pytest.raises(UsageError, match=r"head: .*phases"):
        replace(a, head={**head, "phases": ["gram"]})
    with pytest.raises(UsageError, match="seed of a session"):
        replace(a, head=of_head("random-features", {"width": 4, "compute": "fixed", "seed": 3}))


def test_head_options_are_those_that_the_head_itself_writes(agreed):
    """An option that is unknown, of another type, missing or spelled otherwise is refused."""
    head, softmax = to_builtins(agreed.head), of_head("softmax", {"rounds": 3})
    odd = {"other": 1, "ridge": "1,0", "intercept": 1, "gamma": "x", "min_norm": None}
    large = {"rounds": 10**9, "features": "/etc/passwd", "seed": 3}
    cases = [{**one, "options": {**one["options"], k: v}}
             for one, options in ((head, odd), (softmax, large))
             for k, v in options.items()]  # fmt: skip
    cases += [{**head, "options": {}}]
    cases += [{**head, "name": n} for n in ("network", "scaling", "../linear", "", None)]
    for one in cases:
        with pytest.raises(AflError):
            replace(agreed, head=one)


BAD = {
    "threshold": [0, -1, 3, 8, 5.0, "5", True, None], "min_rows": [-1, 1.5, 65, "3"],
    "max_rows": [0, -5, 1 << 25, 2.5, None], "scale": [-1, 31, 2.0, "1"],
    "protection": ["plain", "", None, 3], "follows": ["ab", "AB" * 32, 7],
    "nonce": ["", "zz" * 16, "0" * 31],
    "classes": [(), ("a", "a"), ("a", ""), ("a", 3), "abc", ("e\u0301", "\u00e9")],
    "head": [{}, [], None, {"name": 1, "options": {}, "digest": "ab" * 32},
             {"name": "linear", "options": {"x": float("nan")}, "digest": "ab" * 32}],
    "space": [{}, None, *({**SPACE, k: v} for k, v in (
        ("dtype", "float32"), ("dim", 0), ("dim", 6.0), ("fraction_bits", 16), ("backbone", 7),
        ("columns", [1]), ("columns", "age"), ("columns", ["x" * 501]), ("columns", ["a", "a"]),
        ("a b", 1)))],
    "noise": [{}, {"epsilon": 1.0}, *({**NOISE, k: v} for k, v in (
        ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", float("inf")), ("epsilon", "1"),
        ("delta", 1e-40), ("delta", 1.0), ("delta", float("nan")), ("clip", 0.0), ("clip", -4.0),
        ("clip", float("nan")), ("colluding", -100), ("colluding", 3), ("colluding", 1.0)))],
    "evaluation": [{}, {**SCORED, "groups": "fm"}, {**SCORED, "groups": ["f", "f"]},
                   {**SCORED, "min_cell": 0}, {**SCORED, "bins": "0:1:15"}],
}  # fmt: skip


def test_terms_of_another_type_or_range_are_refused(agreed):
    for name, value in ((name, value) for name, values in BAD.items() for value in values):
        limits = {"max_rows": 0} if name == "noise" else {}
        with pytest.raises(AflError):
            replace(agreed, **{name: value, **limits})


def test_agreement_fuzz(agreed):
    """Any JSON in any place is refused by name, never with a traceback, nor with characters that
    would move the cursor."""
    rng, odd = np.random.default_rng(0), "x\x1b[3A\r\n  threshold  4 of 4"
    values = [None, True, -1, 0, 1, 3, 3.5, 1e400, float("nan"), "", odd, "\ud800", [], {}, [[]],
              {odd: 1}, 2**70, [1, 2], "ab" * 32, -0.0]  # fmt: skip
    body = json.loads(agreed.text)

    def changed(value):
        if isinstance(value, dict) and value and rng.random() < 0.8:
            if rng.random() < 0.1:
                return {**value, odd: 1}
            key = sorted(value)[rng.integers(len(value))]
            return {**value, key: changed(value[key])}
        if isinstance(value, list) and value and rng.random() < 0.8:
            at = int(rng.integers(len(value)))
            return [*value[:at], changed(value[at]), *value[at + 1 :]]
        return values[rng.integers(len(values))]

    told = []
    for _ in range(600):
        data = json.dumps(changed(body), indent=1, sort_keys=True, ensure_ascii=False)
        try:
            made = Agreement.parse(data.encode("utf-8", "surrogatepass"))
        except CorruptFileError as error:
            told.append(str(error))
            continue
        assert 5 <= made.threshold <= 7
        assert 0 <= made.min_rows <= made.max_rows <= 1 << 24
    assert all(text.isprintable() for text in told)
    for data in (b"[" * 3_000_000, b'{"a":' * 100_000, b"", b"\xff", b"[]", b"7",
                 agreed.text + b" ",
                 agreed.text.replace(b'"follows": ""', b'"more": 1, "follows": ""'),
                 agreed.text.replace(b'"threshold": 5', b'"threshold": 5.0')):  # fmt: skip
        with pytest.raises(CorruptFileError, match="session file"):
            Agreement.parse(data)


def test_colluding_follows_from_the_threshold(tmp_path):
    """So that two sets of t share an honest member, and three members' rows are in what opens."""
    for n, t, c in ((3, 3, 0), (4, 3, 0), (4, 4, 1), (5, 5, 2), (7, 5, 2), (16, 11, 5)):
        a = Federation(tmp_path / f"{n}-{t}", n=n, threshold=t).agreed
        assert a.colluding == c <= min(2 * t - n - 1, t - 3)
        assert f"the server and {c} members" in format_text(a)


def test_epsilon_shown_is_added(tmp_path):
    """σ of what is added gives the ε in the words, whatever was asked for."""
    f = Federation(tmp_path, n=7, noise=NOISE)
    for colluding in (0, 1, 2):
        a = replace(f.agreed, noise={**NOISE, "colluding": colluding})
        layout = Layout.of(a, f.first, first=True)
        sigma, honest = Noise.of(a, layout).sigma, a.threshold - 1 - colluding
        rho = 0.0
        for k, (n, change) in {"gram": (21, 4096.0**2), "cross": (18, 4096.0),
                               "class counts": (3, 1.0)}.items():  # fmt: skip
            parts = {sigma[k]: n} if k != "gram" else {sigma[k]: 6, sigma[k] / 2**0.5: 15}
            rho += noise_.rho(change / sigma[k], parts, honest)
        epsilon = noise_.epsilon(rho, 1e-5)
        assert epsilon == pytest.approx(1.0, rel=1e-6)
        assert f"ε = {epsilon:.4g}, δ = 1e-05" in format_text(a)


def test_names_are_files_on_every_system_and_no_two_look_alike(agreed):
    for name in ("s\u0456te-0", "../site", "a b", "", "x" * 65, "site.", "-a", "Nul.x", None):
        with pytest.raises(UsageError, match="no name"):
            keys_.Party(name, agreed.server.key)
    alike = replace(agreed.members[3], name="SITE-00")
    for twin, why in ((alike, "one like it"), (keys_.Party("other", agreed.server.key), "the key")):
        with pytest.raises(MismatchError, match=why):
            replace(agreed, members=tuple(sorted((*agreed.members[:3], twin))), threshold=3)
    for key in (f"{agreed.server.key[:2]} {agreed.server.key[2:]}", agreed.server.key.upper(), "",
                "01" + "00" * 31, "00" * 32, "ec" + "ff" * 30 + "7f", 7):  # fmt: skip
        with pytest.raises(CorruptFileError, match="no Ed25519 key"):
            keys_.Party("eve", key)


def test_a_key_that_signs_for_other_programs_signs_nothing_here(agreed):
    me, text = key_of("eve"), agreed.text
    assert not me.party.has_signed(me.signing.sign(text), b"afltool federation 1\n" + text)
