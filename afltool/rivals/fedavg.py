"""FedAvg: the average of what the clients train, weighted by their rows."""

from __future__ import annotations

from .base import Method


class FedAvg(Method):
    """McMahan et al., AISTATS 2017."""

    name = "fedavg"
