"""What libraries say while they read pictures: counted and named, never raw on stderr."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...progress import log

if TYPE_CHECKING:
    from PIL.Image import Image

    from .base import Pictures

MOST_TEXTS = 8  # different remarks that are told; a text may have numbers of its picture in it
_READERS = r"(PIL|pydicom|afltool)(\.|$)"  # modules whose warnings are about the picture


class Heard(logging.Handler):
    """Remarks of readers: of each text the number of pictures, and the first of them.

    A warning belongs to the picture that its thread reads; in other threads nothing changes.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._now: dict[int, list[str]] = {}  # thread → what was said of its picture
        self._told: dict[str, tuple[int, str]] = {}
        self._adding = threading.Lock()

    def of(self, pictures: Pictures) -> Pictures:
        """The same pictures, whose remarks are heard inside `listening`."""
        return _HeardPictures(pictures, self)

    @contextmanager
    def listening(self, stage: str) -> Iterator[None]:
        """Inside, remarks are collected; at the end they are told, a line each."""
        readers = [logging.getLogger(name) for name in ("PIL", "pydicom")]
        try:
            with warnings.catch_warnings():
                self._show = warnings.showwarning
                for category in (UserWarning, RuntimeWarning):
                    warnings.filterwarnings("always", "", category, _READERS)
                warnings.showwarning = self._warned
                for reader in readers:
                    reader.addHandler(self)
                yield
        finally:
            for reader in readers:
                reader.removeHandler(self)
            for text, (images, where) in self._told.items():
                log.info("%s: %d images, such as %s: %s", stage, images, where, text)
            self._told.clear()

    def _warned(self, message: Warning | str, *more: Any, **named: Any) -> None:
        said = self._now.get(threading.get_ident())
        if said is None:
            self._show(message, *more, **named)
        else:
            said.append(str(message))

    def emit(self, record: logging.LogRecord) -> None:
        self._now.get(threading.get_ident(), []).append(record.getMessage())

    def load(self, pictures: Pictures, i: int) -> Image:
        me = threading.get_ident()
        said = self._now[me] = []
        try:
            picture = pictures.load(i)  # of one that cannot be used the error has the reason
        finally:
            del self._now[me]
        with self._adding:
            for text in {" ".join(one.split()) for one in said}:
                full = len(self._told) >= MOST_TEXTS and text not in self._told
                text = "other remarks of its reader" if full else text
                images, where = self._told.get(text, (0, ""))
                self._told[text] = images + 1, where or pictures.describe(i)
        return picture


@dataclass(frozen=True)
class _HeardPictures:
    pictures: Pictures
    heard: Heard

    def load(self, i: int) -> Image:
        return self.heard.load(self.pictures, i)

    def describe(self, i: int) -> str:
        return self.pictures.describe(i)
