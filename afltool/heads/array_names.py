"""Names of the arrays that heads of one linear system gather; this module does not import SciPy."""

from __future__ import annotations

from ..values.phases import Phase

PHASE = Phase("gram")  # the only phase of a head that is one linear system
COUNTS = Phase("counts")  # of solved heads that are evaluated
GRAM, CROSS = "gram", "cross"  # the arrays of its statistics
