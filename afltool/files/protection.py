"""What is done to a client's statistics before they leave it: nothing, unless options ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..values.statistics import Statistics
from .statistics import save_statistics


class Protection:
    """Statistics leave as they are; `afltool.privacy.protection` has the one that protects them.

    ``in_any_thread``: whether several clients' statistics may be saved at the same time. ``masks``:
    whether the numbers are hidden; ``hides``: hidden or noisy, so that the header tells less, too.
    ``least_rows``: the least rows of a client that the agreement allows.
    """

    in_any_thread = True

    @property
    def masks(self) -> bool:
        return False

    @property
    def hides(self) -> bool:
        return False

    @property
    def least_rows(self) -> int:
        return 0

    def blocks(self, blocks: Iterable[Any]) -> Iterable[Any]:
        """Blocks of rows (X, y) as they are gathered."""
        return blocks

    def recipe(self, made_by: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe of a client's file."""
        return dict(made_by)

    def check_new(self, name: str, content: str) -> None:
        """Refuse, before they are computed, statistics of a client that must not leave it again.

        ``content``: a digest of which rows they are of, and for which round of a head; '' unless
        they are masked.
        """

    def save(
        self,
        path: Path,
        statistics: Statistics,
        made_by: Mapping[str, Any],
        head_file: str | None,
        content: str,
    ) -> Path:
        """Write one client's statistics; ``made_by`` is the recipe without protection, ``content``
        as in `check_new`."""
        return save_statistics(path, statistics, made_by, head_file)

    def say_next(self, written: Sequence[Path]) -> None:
        """What is to be done with the files."""
