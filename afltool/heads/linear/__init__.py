"""The linear head (AFL): least squares on the features, solved from their exact sums."""
