"""Studies: grids of runs and baselines described in TOML, their folders and their results."""
