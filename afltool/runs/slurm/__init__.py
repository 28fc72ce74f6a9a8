"""Stages on other machines: job scripts for Slurm, and the state of the jobs."""
