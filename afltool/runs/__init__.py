"""A run as a whole: its options, its folder, and who carries it out."""
