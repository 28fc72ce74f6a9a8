"""What a roster asks of every member's statistics, and what it must keep to itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MismatchError, NumericalError, UsageError
from ..files.schema import ADDABLE_SPACE, Open, described, different_texts
from ..options.privacy import MASKED, MODES
from ..options.statistics import NoiseOptions
from ..values.names import Phase
from ..values.text import difference
from . import messages as msg
from .identity import Member

INT64 = 2**63 - 1
LOCAL, DISTRIBUTED = "local", "distributed"  # noise at each client, or shared under masks

mode = described("signed or masked", lambda v: v in MODES)
BUDGET = {"epsilon": msg.real, "delta": msg.real, "clip": msg.real}
PATTERN = {
    "protection": {"mode": mode, "noise": (BUDGET, None)},
    "space": (Open(ADDABLE_SPACE), None),
    "classes": (different_texts, None),
}


@dataclass(frozen=True)
class Budget:
    """Differential privacy of every member's statistics; ``clip`` in units of the features."""

    epsilon: float
    delta: float
    clip: float

    @classmethod
    def of(cls, o: NoiseOptions) -> Budget | None:
        """That of options; None without noise."""
        if o.dp_epsilon is None or o.dp_delta is None or o.clip is None:
            return None
        return cls(o.dp_epsilon, o.dp_delta, o.clip)

    def __str__(self) -> str:
        """As options of the command line, with all digits."""
        return f"--dp-epsilon {self.epsilon} --dp-delta {self.delta} --clip {self.clip}"


@dataclass(frozen=True)
class Terms:
    """``mode``: `MODES`; ``noise``, if any; ``space`` and ``classes`` as headers have them, or None
    where the roster does not say; real numbers of the space as texts."""

    mode: str
    noise: Budget | None = None
    space: Mapping[str, Any] | None = None
    classes: tuple[str, ...] | None = None

    @property
    def masked(self) -> bool:
        return self.mode == MASKED

    @property
    def shares_noise(self) -> bool:
        """Whether the members make the noise of the sum together."""
        return self.masked and self.noise is not None

    def as_dict(self) -> dict[str, Any]:
        """The fields of the roster; `PATTERN`."""
        return {
            "protection": {
                "mode": self.mode,
                "noise": self.noise and {k: msg.real_text(v) for k, v in vars(self.noise).items()},
            },
            "space": None if self.space is None else dict(self.space),
            "classes": None if self.classes is None else list(self.classes),
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Terms:
        protection, classes = body["protection"], body["classes"]
        noise = protection["noise"]
        return cls(
            protection["mode"],
            noise and Budget(**{k: float(noise[k]) for k in BUDGET}),
            body["space"],
            None if classes is None else tuple(classes),
        )

    def check_rows(self, where: str | Path, whose: str | Path, rows: Mapping[str, Any]) -> None:
        """Refuse a header (or context) of other features or classes than those of the roster."""
        named = {"space": self.space, "classes": self.classes}
        wanted = {k: v for k, v in named.items() if v is not None}
        bound = msg.without_reals({k: rows[k] for k in wanted})
        if wrong := difference(wanted, bound, f"in {whose}", f"in {where}"):
            raise MismatchError(f"{where} does not fit the roster {whose}: {wrong}")

    def noise_for(self, wanted: Budget | None, masks: bool, whose: Path) -> Budget | None:
        """The noise of a member that gave these options; refused unless they are the roster's."""
        self.check_mode(masks, "--mask OFFERS", whose)
        if wanted not in (None, self.noise):
            raise UsageError(
                f"the options are {wanted}, but the roster {whose} says "
                f"{self.noise or 'that nobody adds noise'}: leave them out, or make a roster with "
                "them, on which all members agree"
            )
        return self.noise

    def check_mode(self, masks: bool, option: str, whose: Path) -> None:
        """Refuse masks where the roster says signed, and no masks where it says masked."""
        if masks and not self.masked:
            raise UsageError(
                f"the roster {whose} says that statistics are {self.mode}, so {option} does not "
                "belong here. If you agreed on masks, it is another roster: compare its digest "
                f"with the others (afltool info {whose} --field digest). Else leave {option} out, "
                "or make a roster with --protection masked"
            )
        if self.masked and not masks:
            raise UsageError(
                f"the roster {whose} says that statistics leave under masks: give {option}; "
                "without it they would be open to read"
            )

    def check_noise(self, where: Path, whose: Path, context: Mapping[str, Any]) -> None:
        """Refuse a member's file whose noise is not that of the roster."""
        noise = context.get("noise")
        budget = noise and {k: noise.get(k) for k in ("form", *BUDGET)}
        wanted = self.noise and {"form": DISTRIBUTED if self.masked else LOCAL, **vars(self.noise)}
        ours, theirs = {"noise": wanted}, {"noise": budget}
        if wrong := difference(ours, theirs, f"in {whose}", f"in {where}"):
            raise MismatchError(f"{where} is not protected as the roster {whose} says: {wrong}")


# ---------------------------------------------------------------- what a roster keeps to


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
