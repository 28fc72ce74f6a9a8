"""Quality of scores: counts that add up, and figures of weighted rows with intervals."""

from .compare import mcnemar
from .counts import Metrics, score_metrics
from .figures import FIGURES, Scored, figure_names
from .intervals import intervals, resampled
from .kept import WRONG, Kept
from .separability import MEASURES, Separability
from .summary import by_part, curves, summary

__all__ = [
    "FIGURES",
    "MEASURES",
    "WRONG",
    "Kept",
    "Metrics",
    "Scored",
    "Separability",
    "by_part",
    "curves",
    "figure_names",
    "intervals",
    "mcnemar",
    "resampled",
    "score_metrics",
    "summary",
]
