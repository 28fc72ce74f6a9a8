"""`python -m afltool`: the command, where the folder of installed commands is not on PATH."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
