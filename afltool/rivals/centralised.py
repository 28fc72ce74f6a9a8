"""Centralised gradient descent: the same trainer on all rows as one client, the reference line."""

from __future__ import annotations

from .base import Method


class Centralised(Method):
    """An epoch is a round. The rows of all clients are pooled, which no federation could do."""

    name = "centralised"
    pools = True
    sends = False
