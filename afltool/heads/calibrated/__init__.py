"""A solved head whose scores became log-probabilities, by counts of scored rows."""
