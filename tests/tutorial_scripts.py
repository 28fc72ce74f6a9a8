"""The shell blocks of a tutorial as scripts; those of windows side by side run at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

WINDOWS = ("office", "north", "south", "west")  # of people who do their part at the same time
#: Each part in a shell of its own, once the first one, the office, has put the session into the
#: place; the code is the one that people hear. Each has a state of its own, as on its own machine.
AT_THE_SAME_TIME = """
CODE=$(python -c "
from pathlib import Path
from afltool.federation.commands import read_session
print(read_session(Path('trial')).code)")
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
            quoted = [text.replace("CODE", '"$CODE"') for text in texts]
            parts = [
                f"(\nexport AFLTOOL_STATE=$PWD/state-{k}\n{text}) &\npids+=($!)\n"
                "until [ -e place/session.json ]; do sleep 0.2; done"
                for k, text in enumerate(quoted)
            ]
            texts = [AT_THE_SAME_TIME.format("\n".join(parts))]
        yield from texts


def script(page: Path, kinds: Iterable[str] = ("sh",)) -> str:
    """All of a page, which ends at the first error."""
    return "set -euo pipefail\n" + "\n".join(scripts(page, kinds))
