"""The linear head on one wide layer of random features."""
