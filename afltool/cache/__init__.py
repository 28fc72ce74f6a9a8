"""What is kept to save time: in memory as far as there is room, else in a file without a name."""
