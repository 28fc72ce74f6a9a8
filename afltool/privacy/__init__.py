"""Who sent what, sums that hide their parts, and noise: docs/privacy.md has the threat model."""
