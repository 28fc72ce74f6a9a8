"""Frozen backbones by name: their networks and weights, their preprocessing, their inference.

Importing these modules is cheap: torch, torchvision and timm are imported when a function needs
them.
"""
