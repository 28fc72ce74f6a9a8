"""Studies: grids of runs and baselines described in TOML, their folder, and what they found."""
