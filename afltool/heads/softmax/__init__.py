"""The softmax head: cross-entropy on the features of another head."""
