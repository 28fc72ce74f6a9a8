"""Whole runs: their options, their folder, and `run`, which carries them out on one machine."""
