"""The options that help against an error, said at the end of its message.

A computation raises an error with a `Remedy` and names no option: it does not know who asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import AflError, Remedy

SAID = {
    Remedy.FRACTION_BITS: "; --fraction-bits {} would hold it (later rows were not read yet and "
    "may need fewer), or use --dtype float32",
    Remedy.REALS: ": use --dtype float32, or scale the features",
    Remedy.FEWER_BITS_OF_ROWS: ": extract with fewer --fraction-bits",
    Remedy.FEWER_BITS_OF_SUMS: ": extract the features with fewer --fraction-bits",
    Remedy.OTHER_ROWS: "; give each file once, or --allow-repeats if you mean it",
    Remedy.OTHER_LAW: ", or a --gamma > 0 in the head; or use --law sum",
    Remedy.RIDGE: ". Give a ridge (--ridge 1, or --ridge auto to choose it by generalised "
    "cross-validation), or --min-norm for the minimum-norm solution",
    Remedy.LARGER_RIDGE: ": use a larger --ridge, or --ridge auto",
    Remedy.RIDGE_BEYOND: ", or give a larger --ridge",
    Remedy.LARGER_FIXED_RIDGE: ": use a larger --ridge",
    Remedy.SHRINKAGE: ": give --shrinkage 0.05, or gather more rows than features",
    Remedy.LARGER_BLOCK_RIDGE: ": use a larger --block-ridge, or 0 for the minimum-norm solution",
    Remedy.LARGER_PENALTY: ": use a larger --penalty",
}


@contextmanager
def advised() -> Iterator[None]:
    """Inside, the message of an error says the options that help; also a decorator of a stage."""
    try:
        yield
    except AflError as error:
        if error.remedy is not None:
            said = SAID[error.remedy].format(error.number)
            error.args = (f"{error}{said}", *error.args[1:])
            error.remedy = None
        raise
