"""What the shell offers for a value that the user has begun to type."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def starting_with(words: Iterable[str]) -> Callable[[str], list[str]]:
    """A function that gives those of ``words`` that begin with what was typed."""
    known = tuple(words)

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete
