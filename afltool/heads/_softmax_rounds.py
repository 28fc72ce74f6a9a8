"""What the softmax head's server remembers between rounds: who is covered, momentum, the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg import softmax as sm
from ..statistics import Statistics, mark

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Progress:
    """Plain values, kept in the head's report.

    ``bits``: gradients are integers in units of 2^−(bits + 24); None: reals. ``momentum``:
    Nesterov's t. ``best``: number of the best round so far, by the held-out loss ``least`` if there
    is one (``validated``), else by the objective. ``objective``: that of the round before.
    ``covered``: `mark` of each client whose rows are in the bound.
    """

    bits: int | None
    covered: list[str]
    rounds: int = 0
    momentum: float = 1.0
    best: int = 0
    least: float | None = None
    validated: bool = False
    objective: float | None = None

    @classmethod
    def begin(cls, total: Statistics, bits: int | None) -> Progress:
        return cls(bits, sorted(mark(who, client) for who, client in total.clients.items()))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Progress:
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def measure(
        self, total: Statistics, validation: Statistics | None, V: F64, mu_n: F64
    ) -> tuple[dict[str, Any], F64]:
        """Loss, objective and gradient norm a row at V, and the gradient with the penalty."""
        gradient, loss = self._real(total)
        gradient = gradient + mu_n * V
        facts = {
            "loss": loss / total.rows,
            "objective": (loss + 0.5 * float((mu_n * V**2).sum())) / total.rows,
            "gradient_norm": float(np.linalg.norm(gradient)) / total.rows,
            "validation_loss": self._validation_loss(validation),
        }
        return facts, gradient

    def after(self, facts: dict[str, Any], momentum: bool) -> tuple[Progress, float]:
        """One round further, and how far the next point lies ahead, in steps of W.

        ``facts`` are told whether the momentum began anew because the objective rose.
        """
        risen = self.objective is not None and facts["objective"] > self.objective
        facts["restarted"] = risen and momentum
        t = 1.0 if risen or not momentum else self.momentum
        following = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5) if momentum else 1.0
        held = facts["validation_loss"]
        value = facts["objective"] if held is None else held
        if self.rounds and self.validated != (held is not None):
            raise UsageError(
                "rounds are judged by held-out clients' loss in all of them or in none: give "
                "--validate (the sum over held-out clients of the same phase) as in the first round"
            )
        further = replace(
            self,
            rounds=self.rounds + 1,
            momentum=following,
            objective=facts["objective"],
            validated=held is not None,
        )
        if self.least is None or value < self.least:
            further = replace(further, best=further.rounds, least=value)
        return further, (t - 1.0) / following

    def check_covered(self, total: Statistics) -> None:
        """The bound holds for rows that are in the gram; others could make a step too long."""
        covered = set(self.covered)
        beyond = [who for who, c in total.clients.items() if mark(who, c) not in covered]
        if beyond:
            raise MismatchError(
                f"{len(beyond)} of {len(total.clients)} clients, such as {min(beyond)}, were not "
                "in the first phase, or not with these rows, so that its gram does not bound their "
                "loss: leave them out of this round, or begin again with them"
            )

    def _real(self, total: Statistics) -> tuple[F64, float]:
        gradient, loss = total.arrays["gradient"], total.arrays["loss"]
        if self.bits is None:
            return gradient, float(loss[0])
        return gradient * 2.0 ** -(self.bits + sm.BITS), float(loss[0]) * 2.0**-sm.BITS

    def _validation_loss(self, validation: Statistics | None) -> float | None:
        """Mean loss of the held-out clients at the point, if there are any."""
        if validation is None:
            return None
        if validation.rows == 0:
            raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
        return self._real(validation)[1] / validation.rows
