from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Nothing here loses its power: hundreds of small files are written without waiting."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
