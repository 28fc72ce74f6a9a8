"""Analytic federated learning over files."""

__version__ = "0.1.0"
