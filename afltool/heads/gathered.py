"""Names of what heads of one linear system gather, apart from their solvers, which take SciPy."""

PHASE = "gram"  # the only phase of a head that is one linear system
GRAM, CROSS = "gram", "cross"  # the arrays of its statistics
