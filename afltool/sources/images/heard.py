"""What libraries say while they read pictures: counted and named, never raw on stderr."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...progress import log
from ...values.arrays import U8

MOST_TEXTS = 8  # that are told; one may have numbers of its picture in it
_READERS = r"(PIL|pydicom|afltool)(\.|$)"  # modules whose warnings are about the picture


class Heard:
    """Remarks of readers: of each text the number of pictures, and one of them.

    A warning belongs to the picture that its thread reads; in other threads nothing changes.
    """

    def __init__(self) -> None:
        self._now: dict[int, set[str]] = {}  # thread → what is said of its picture
        self._told: dict[str, tuple[int, str]] = {}
        self._adding = threading.Lock()

    @contextmanager
    def listening(self, stage: str) -> Iterator[None]:
        """Inside, remarks are collected; at the end each is told in a line."""
        tiff = _libtiff()
        handler = tiff and tiff.TIFFSetErrorHandler(None)  # Pillow raises what it would print
        try:
            with warnings.catch_warnings():
                for category in (UserWarning, RuntimeWarning):
                    warnings.filterwarnings("always", "", category, _READERS)
                self._show, warnings.showwarning = warnings.showwarning, self._warned
                yield
        finally:
            if tiff:
                tiff.TIFFSetErrorHandler(ctypes.c_void_p(handler))
            for text, (images, where) in list(self._told.items())[:MOST_TEXTS]:
                log.info("%s: %d images, such as %s: %s", stage, images, where, text)

    def _warned(self, message: Warning | str, *more: Any, **named: Any) -> None:
        if (said := self._now.get(threading.get_ident())) is None:
            self._show(message, *more, **named)
        else:
            said.add(" ".join(str(message).split()))

    def decoded(self, i: int, decode: Callable[[int], U8], describe: Callable[[int], str]) -> U8:
        """``decode(i)``; of a picture that cannot be used, its error alone tells the reason."""
        said = self._now[threading.get_ident()] = set()
        try:
            pixels = decode(i)
        finally:
            del self._now[threading.get_ident()]
        with self._adding:
            for text in said:
                images, where = self._told.get(text, (0, ""))
                self._told[text] = images + 1, where or describe(i)
        return pixels


def _libtiff() -> Any:
    """The library in Pillow's wheel, which prints errors by itself; None without one."""
    import PIL

    folder = Path(PIL.__file__).parent
    found = [*folder.parent.glob("pillow.libs/libtiff*"), *folder.glob(".dylibs/libtiff*")]
    tiff = ctypes.CDLL(str(found[0])) if found else None
    if tiff:
        tiff.TIFFSetErrorHandler.restype = ctypes.c_void_p
    return tiff
