"""One-shot classifiers from class sums: nearest mean, LDA, FedCGS, Fed3R, naive Bayes, QDA."""
