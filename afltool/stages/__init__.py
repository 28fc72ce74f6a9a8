"""The stages, one module each, and `stage` with the table of them; importing it loads nothing."""
