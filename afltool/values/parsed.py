"""Values that a text says: each is parsed once, where it enters, and has one text form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Parsed:
    """Base of frozen values that are made of a text; ``str`` of one is that text."""

    def text_form(self) -> str | float:
        """What files and scripts hold of it: its text, or the number that it is."""
        return str(self)


@dataclass(frozen=True)
class Written(Parsed):
    """A value that keeps the text it was made of."""

    text: str

    def __str__(self) -> str:
        return self.text


def text_form(value: Any) -> Any:
    """The value of an option as files and scripts hold it.

    >>> text_form((1, None, "a"))
    (1, None, 'a')
    """
    if isinstance(value, tuple):
        return tuple(map(text_form, value))
    return value.text_form() if isinstance(value, Parsed) else value


def is_parsed(value: Any) -> bool:
    """Whether it, or each of several values, is parsed."""
    several = value if isinstance(value, tuple) and value else (value,)
    return all(isinstance(one, Parsed) for one in several)
