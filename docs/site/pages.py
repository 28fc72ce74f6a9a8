"""What the site has beside docs/: the root's pages, its examples, and Python's reference."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, config: Any) -> Files:
    """The root's pages (index.md has the part of README.md), and the examples as files."""
    taken = {page: ROOT / name for name, page in PAGES.items() if page != "index.md"}
    examples = [path for path in (ROOT / "examples").iterdir() if path.is_file()]
    taken |= {f"examples/{path.name}": path for path in examples}
    for uri, path in taken.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(text: str, page: Any, files: Files, **_: Any) -> str:
    """Links lead to pages of the site, also those out of docs/; titles replace names of files."""
    own = page.file.src_uri
    at_root = own in PAGES.values() and own != "index.md"
    folder = "" if at_root else posixpath.join("docs", posixpath.dirname(own))

    def rewritten(link: re.Match[str]) -> str:
        shown, at, rest = link.groups()
        at = posixpath.normpath(posixpath.join(folder, at))
        at = PAGES.get(at, at.removeprefix("docs/"))
        target = files.get_file_from_path(at)
        if shown.endswith((".md", "/")) and target and target.page and target.page.title:
            shown = target.page.title
        return f"[{shown}]({posixpath.relpath(at, posixpath.dirname(own) or '.')}{rest}"

    text = re.sub(r"\[([^]\[]*)\]\(([^)#:\s]+)(#[^)]*\)|\))", rewritten, text)
    text = text.replace("][", "]\\[") if own == "commands.md" else text  # no link of two brackets
    return with_signatures(text) if own == "api.md" else text


def with_signatures(text: str) -> str:
    """The introduction of api.md; below it mkdocstrings writes each name with its types."""
    start, *names = re.split(r"^## (\w+)\n", text, flags=re.M)
    return start + "".join(f"\n::: afltool.{name}\n" for name in names[::2])
