"""The figures of a study: their names, units and digits in tables; the statistics over seeds."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """What a table calls a figure, the factor to its unit there, and how many digits it has.

    ``digits`` behind the point; -n: n digits in all. ``unit``: in CSV and JSON, where figures
    are as the program measures them.
    """

    label: str
    factor: float = 1
    digits: int = 0
    unit: str = ""

    def text(self, value: float) -> str:
        """A value in the table's unit."""
        scaled = value * self.factor
        return f"{scaled:.{self.digits}f}" if self.digits >= 0 else f"{scaled:.{-self.digits}g}"


#: What `evaluate` measures of a head, and of a deep one after every layer.
MEASURED = {
    "top1": Figure("top-1, %", 100, 2, "fraction"),
    "top5": Figure("top-5, %", 100, 2, "fraction"),
    "train_top1": Figure("training top-1, %", 100, 2, "fraction"),
    "csr": Figure("CSR", digits=3),
    "ifs": Figure("IFS", digits=3),
    "dm": Figure("DM", digits=3),
    "train_csr": Figure("training CSR", digits=3),
    "train_ifs": Figure("training IFS", digits=3),
    "train_dm": Figure("training DM", digits=3),
}
#: All figures of a cell.
VALUES = {
    **MEASURED,
    "seconds": Figure("seconds", digits=1, unit="seconds"),
    "upload_bytes": Figure("MB sent by a client, at most", 1e-6, -3, "bytes"),
    "download_bytes": Figure("MB sent to a client", 1e-6, -3, "bytes"),
    "file_bytes": Figure("MB in a client's files", 1e-6, -3, "bytes"),
    "exchanges": Figure("rounds of communication", unit="rounds"),
    "density": Figure("entries of the sums that are not 0, %", 100, 2, "fraction"),
    "n": Figure("test rows", unit="rows"),
}
#: These, and what only papers have.
FIGURES = {**VALUES, "deviation": Figure("sum of absolute deviations", digits=-3)}

STATISTICS = {
    "mean±sd": "mean ± standard deviation over seeds",
    "mean±se": "mean ± standard error over seeds",
    "mean": "mean over seeds",
    "median": "median over seeds",
    "max": "largest over seeds",
}
