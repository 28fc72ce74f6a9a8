"""The shell blocks of a tutorial as scripts; those of windows side by side run at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

WINDOWS = ("office", "north", "south", "west")  # of people who do their part at the same time
#: Each part in a shell of its own; the digest is the one that people compare.
AT_THE_SAME_TIME = """
DIGEST=$(afltool info trial/session.json --field digest)
pids=()
{}
for pid in "${{pids[@]}}"; do wait "$pid"; done
"""


def scripts(page: Path, kinds: Iterable[str] = ("sh",)) -> Iterator[str]:
    """The blocks in order; those of kind ``full`` need the build with PyTorch, one of kind
    ``python`` is saved as make.py."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    saved = "cat > make.py <<'END'\n{}END\n"
    told = [
        (kind, saved.format(text) if kind == "python" else text)
        for kind, text in found
        if kind in (*kinds, *WINDOWS, "python")
    ]
    for apart, group in groupby(told, lambda one: one[0] in WINDOWS):
        texts = [text for _, text in group]
        if apart:
            parts = (f"(\n{text.replace('DIGEST', '$DIGEST')}) &\npids+=($!)" for text in texts)
            texts = [AT_THE_SAME_TIME.format("\n".join(parts))]
        yield from texts


def script(page: Path, kinds: Iterable[str] = ("sh",)) -> str:
    """All of a page, which ends at the first error."""
    return "set -euo pipefail\n" + "\n".join(scripts(page, kinds))
