"""Takes from CHANGELOG.md's Unreleased what docs/decisions/history.md has already.

python docs/clean_changelog.py

Git merges the changelog by keeping the lines of both sides (.gitattributes); so a branch that began
before a release brings the released lines back.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGELOG, HISTORY = ROOT / "CHANGELOG.md", ROOT / "docs" / "decisions" / "history.md"


TOP = "\n## Unreleased\n\n"
MARK = "<!-- Lines below this one came back in a merge: python docs/clean_changelog.py -->\n"


def entries(text: str) -> list[str]:
    """The entries of a list, each with its further lines."""
    return re.findall(r"^- .*\n(?:  .*\n)*", text, re.M)


def start(entry: str) -> str:
    """By which an entry is known: its first line, before any link."""
    return entry.splitlines()[0].split("](")[0]


def cleaned(text: str) -> str:
    """The changelog without what came back; what is new among it goes to the top."""
    known = {start(one) for one in entries(HISTORY.read_text(encoding="utf-8"))}
    text, mark, back = text.partition(MARK)
    new = [one for one in entries(back) if start(one) not in known]
    for one in entries(text):
        if start(one) in known:
            text = text.replace(one, "", 1)
    top = f"{TOP}{''.join(new)}" + ("\n" if new else "")
    return re.sub(r"\n{3,}", "\n\n", text.replace(TOP, top, 1)) + mark


if __name__ == "__main__":
    CHANGELOG.write_text(cleaned(CHANGELOG.read_text(encoding="utf-8")), encoding="utf-8")
