"""The options of each stage: one dataclass a stage, one line an option; light to import.

The command line, the keys of a TOML file, `run`, the Slurm scripts, recipes and docs/commands.md
all follow from these fields. To add an option: a line here, and its use in the stage.
"""

from __future__ import annotations

from .fields import Options, checked, given, help_of, made, made_for, option
from .used_with import flag

__all__ = ["Options", "checked", "flag", "given", "help_of", "made", "made_for", "option"]
