"""What a roster must keep to, so that it protects its members and every sum fits into int64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..errors import MismatchError, NumericalError, UsageError
from ..values.phases import Phase
from .identity import Member

INT64 = 2**63 - 1


def check_keys(members: Sequence[Member], server: Member | None) -> None:
    """Refuse two of a name or a key, the server among them."""
    everybody = [*members, *([] if server is None else [server])]
    for what in ("name", "sign", "agree"):
        counts = Counter(getattr(m, what) for m in everybody)
        same = [m.name for m in everybody if counts[getattr(m, what)] > 1]
        if same:
            kind = "name" if what == "name" else "key"
            raise MismatchError(
                f"{len(same)} in the roster have one {kind}: {', '.join(map(repr, same))}; "
                "each member, and the server, makes a key pair of its own (afltool keys new)"
            )


def usual_threshold(n: int, c: int, noise: bool = False) -> int:
    """⌊2n/3⌋ + 1 of n members, or more where ``c`` who collude, or shared ``noise``, require it.

    >>> usual_threshold(3, 0), usual_threshold(10, 0), usual_threshold(10, 5)
    (3, 7, 8)
    >>> usual_threshold(4, 1), usual_threshold(4, 1, noise=True)
    (3, 4)
    """
    return max(2 * n // 3 + 1, (n + c) // 2 + 1, c + (3 if noise else 2))


def check_threshold(n: int, t: int, c: int, noise: bool) -> None:
    """Refuse a threshold with which n members are not protected from c who collude.

    2t > n + c: each member answers one request, so no two requests find t answers each. t − c ≥ 2:
    the sum less what the c know is of two others. With ``noise`` that is shared under masks, that
    of t − 1 − c others must be enough, because a member knows its own; they are 2 at least.
    """
    if not (c + 2 <= t <= n and 2 * t > n + c):
        of = f"{n} members" + (f", {c} of them colluding," if c else "")
        raise UsageError(
            f"the threshold of {of} must be more than {(n + c) / 2:g}, at least {c + 2} and at "
            f"most {n}; found {t}. With fewer a server could ask some members for one secret, "
            "and others for the other one"
        )
    if noise and t - 1 - c < 2:
        raise UsageError(
            f"noise shared under masks needs a threshold of at least {c + 3}; found {t}. A "
            f"member knows its own noise, and {c} may tell it theirs, so that of the {t - 1 - c} "
            "others who must stay has to be enough, and they must be 2 or more"
        )


def row_bound(phase: str) -> int:
    """The most that one row adds to a number of a phase, in its units (docs/privacy.md).

    Features are below 2^15. A gradient, and the cross of a DeepAFL block, multiply them by
    residuals of at most 2^24.
    """
    return 2**39 if Phase(phase).kind in ("gradient", "block") else 2**30


def most_rows(n: int, phase: str) -> int:
    """The most rows of a member with which the sum of n members fits into int64."""
    return INT64 // (max(n, 1) * row_bound(phase))


def check_rows(n: int, max_rows: int, phase: str) -> None:
    """Refuse sums of n members, of ``max_rows`` each, that might not fit."""
    if max_rows > most_rows(n, phase):
        raise NumericalError(
            f"sums over {n} members of up to {max_rows} rows each could exceed int64; "
            f"lower --max-rows to {most_rows(n, phase)}"
        )
