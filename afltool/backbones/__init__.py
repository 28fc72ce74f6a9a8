"""Frozen backbones by name; torch, torchvision and timm are imported when a function needs them."""
