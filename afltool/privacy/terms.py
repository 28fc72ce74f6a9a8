"""What a roster asks of every member's statistics: their protection, and what their rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MismatchError, UsageError
from ..files import headers
from ..options.privacy import MASKED, MODES, NoiseOptions
from ..values.differences import difference
from . import messages as msg

LOCAL, DISTRIBUTED = "local", "distributed"  # noise at each client, or shared under masks

mode = headers.described("signed or masked", lambda v: v in MODES)
BUDGET = {"epsilon": msg.real, "delta": msg.real, "clip": msg.real}
PATTERN = {
    "protection": {"mode": mode, "noise": (BUDGET, None)},
    "space": (headers.Open(headers.ADDABLE_SPACE), None),
    "classes": (headers.different_texts, None),
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

    def check_rows(self, where: Path, whose: Path, rows: Mapping[str, Any]) -> None:
        """Refuse a header (or context) of other features or classes than those of the roster."""
        named = {"space": self.space, "classes": self.classes}
        wanted = {k: v for k, v in named.items() if v is not None}
        found = msg.without_reals({k: rows[k] for k in wanted})
        if wrong := difference(wanted, found, f"in {whose}", f"in {where}"):
            raise MismatchError(f"{where} does not fit the roster {whose}: {wrong}")

    def noise_for(self, asked: Budget | None, masks: bool, whose: Path) -> Budget | None:
        """The noise of a member that gave these options; refused unless they are the roster's."""
        self.check_mode(masks, "--mask OFFERS", whose)
        if asked not in (None, self.noise):
            raise UsageError(
                f"the options are {asked}, but the roster {whose} says "
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
        told = context.get("noise")
        found = told and {k: told.get(k) for k in ("form", *BUDGET)}
        wanted = self.noise and {"form": DISTRIBUTED if self.masked else LOCAL, **vars(self.noise)}
        ours, theirs = {"noise": wanted}, {"noise": found}
        if wrong := difference(ours, theirs, f"in {whose}", f"in {where}"):
            raise MismatchError(f"{where} is not protected as the roster {whose} says: {wrong}")
