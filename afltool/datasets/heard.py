"""What libraries warn of while they read pictures: counted and named, never raw on stderr."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..progress import log
from ..values.arrays import U8

MOST_TEXTS = 8  # that are told; one may have numbers of its picture in it
_READERS = r"(PIL|pydicom|afltool)(\.|$)"  # modules whose warnings are about the picture


class Heard:
    """Remarks of readers: of each text the number of pictures, and the last of them.

    A warning belongs to the picture that its thread reads; in other threads nothing changes.
    """

    def __init__(self) -> None:
        self._now, self._adding = threading.local(), threading.Lock()
        self._told: dict[str, tuple[int, str]] = {}

    @contextmanager
    def listening(self, stage: str) -> Iterator[None]:
        """Inside, remarks are collected; at the end each is told in a line."""
        try:
            with warnings.catch_warnings():
                for category in (UserWarning, RuntimeWarning):
                    warnings.filterwarnings("always", "", category, _READERS)
                self._show, warnings.showwarning = warnings.showwarning, self._warned
                yield
        finally:
            for text, (images, where) in list(self._told.items())[:MOST_TEXTS]:
                log.info("%s: %d images, such as %s: %s", stage, images, where, text)

    def _warned(self, message: Warning | str, *more: Any, **named: Any) -> None:
        where, said = getattr(self._now, "picture", ("", set[str]()))
        text = " ".join(str(message).split())
        if not where:
            self._show(message, *more, **named)
        elif text not in said:
            said.add(text)
            with self._adding:
                self._told[text] = self._told.get(text, (0, ""))[0] + 1, where

    def decoded(self, i: int, decode: Callable[[int], U8], describe: Callable[[int], str]) -> U8:
        """``decode(i)``, whose remarks are about that picture."""
        self._now.picture = describe(i), set[str]()
        try:
            return decode(i)
        finally:
            del self._now.picture
