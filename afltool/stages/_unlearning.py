"""The head of a total without a member, solved again by the server and by who checks it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, MismatchError
from ..files.heads import load_head
from ..files.statistics import load_statistics
from ..heads import make_options
from ..options.solving import SolveOptions
from ..privacy import certificate
from ..privacy.session import is_session
from ..privacy.session import load as load_session
from ..progress import log
from ..values.statistics import Statistics, Sum
from . import STAGES

ROUNDING = 1e-9  # largest difference of weights, by the largest one, that other machines make


def solved_again(total: Path, before: Path, out: Path, overwrite: bool = False) -> Path:
    """The head of a total with the options and threads that the head ``before`` was solved with."""
    head = load_head(before)
    threads = head.header["recipe"]["options"]["threads"]
    context = load_statistics(total).context.head
    agreed, used = make_options(context["name"], context["options"]), head.head.options
    changed = {name: getattr(used, name) for name in agreed.changeable()}
    changed = {name: one for name, one in changed.items() if one != getattr(agreed, name)}
    if head.report.get("ridge_by") == "AdaSSP":  # it follows from the noise of the total
        changed.pop("ridge", None)
    options = SolveOptions(threads=threads)
    inputs, how = {"total": total}, {"head_options": changed, "overwrite": overwrite}
    STAGES["solve"].make(inputs, options, out, **how)
    return out


def names(total: Statistics) -> list[str]:
    return sorted(who.name for who in total.clients)


def check_certificate(papers: Sequence[Path], files: Sequence[Path]) -> dict[str, Any]:
    """Repeat what a certificate says: its signatures, the subtraction and the solve.

    ``papers``: the certificate and the session's file; ``files``: both totals and both heads.
    """
    kinds = {certificate.is_certificate(p): p for p in papers}
    sessions = [p for p in papers if is_session(p)]
    if not sessions or True not in kinds:
        raise InputError("a certificate is checked with the file of its session: give session.json")
    path = kinds[True]
    taken, agreed = certificate.read(path, load_session(sessions[0]))
    body = taken.body
    totals, heads = _by_digest(body, files)
    before, after = load_statistics(totals["before"]), load_statistics(totals["after"])
    found = {"before": names(before), "after": names(after)}
    if found != body["members"] or [*set(found["before"]) - set(found["after"])] != [
        body["member"]
    ]:
        raise MismatchError(f"{path} names other members than the totals: {body['members']}")
    if Sum(before).subtract(after).result().digest() != body["removed"]["numbers"]:
        raise MismatchError(f"{path}: the totals differ by other numbers than those it names")
    with tempfile.TemporaryDirectory() as folder:
        again = solved_again(totals["after"], heads["before"], Path(folder) / "head.h5")
        apart = _apart(heads["after"], again)
    log.info(
        "verify: %r is out of the total, the head solves the rest%s; signed by the server%s. %s",
        body["member"], f" up to {apart:.1e}" if apart else ", bit by bit",
        " and the member" if agreed else " alone", body["says"],
    )  # fmt: skip
    return {
        "path": str(path),
        "kind": "certificate",
        "digest": taken.digest,
        "intact": True,
        "member": body["member"],
        "countersigned": agreed,
        "head_differs_by": apart,
        "says": body["says"],
    }


def _by_digest(
    body: Mapping[str, Any], files: Sequence[Path]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The files that a certificate names."""
    from ..files.hdf5 import read_header

    known = {read_header(path)["digest"]: path for path in files}
    lacking = [f"the {k} {when}" for k in ("total", "head") for when in ("before", "after")
               if body[k][when] not in known]  # fmt: skip
    if lacking:
        raise InputError(f"the certificate names files that are not given: {', '.join(lacking)}")
    total, head = ({when: known[body[k][when]] for when in body[k]} for k in ("total", "head"))
    return total, head


def _apart(told: Path, again: Path) -> float:
    """The largest difference of two heads' numbers, by the largest; 0 for equal digests."""
    ours, theirs = load_head(told).head, load_head(again).head
    if ours.digest() == theirs.digest():
        return 0.0
    pairs = [(a, theirs.arrays()[name]) for name, a in ours.arrays().items()]
    apart = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    if apart > ROUNDING:
        raise MismatchError(f"{told} is not the solution of the total: it differs by {apart:.1e}")
    return apart
