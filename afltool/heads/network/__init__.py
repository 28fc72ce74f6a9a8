"""Layers with ReLU between them, as `baseline` trains them; no federation can begin with them."""
