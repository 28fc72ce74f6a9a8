"""Draws the pictures of docs/gallery.md: runs its commands in a new folder, keeps the pictures.

python docs/make_gallery.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

PAGE = Path(__file__).with_name("gallery.md")
KEPT = PAGE.with_suffix("")


def draw(folder: Path) -> list[Path]:
    """The pictures that the commands of the page draw in ``folder``."""
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    subprocess.run(["bash", "-ec", "".join(blocks)], cwd=folder, check=True)
    return [folder / name for name in re.findall(r"\(gallery/(.+?)\)", text)]


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        for picture in draw(Path(made)):
            print(shutil.copy(picture, KEPT))
