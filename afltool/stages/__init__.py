"""The stages: each reads files and writes one, and is a function of plain arguments."""
