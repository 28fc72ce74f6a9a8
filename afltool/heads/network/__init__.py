"""Layers with ReLU between them, as `baseline` trains them; read by everything, begun by nobody."""
