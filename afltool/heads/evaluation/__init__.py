"""Solved heads that are measured together: the sums of this "head" are counts of scored rows."""
