"""Sites that are apart: their files travel by themselves, over any place that all of them reach."""
