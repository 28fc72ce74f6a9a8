"""What carries stages out on other machines. Slurm: its scripts, and what has become of them."""
