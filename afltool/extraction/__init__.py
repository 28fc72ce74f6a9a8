"""The parts of an extraction: its request, its network, its feature space and the store."""
