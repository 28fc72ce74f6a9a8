"""Sites that are apart: one agreement, one protocol, over any place of files."""
