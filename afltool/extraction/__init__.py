"""What an extraction is asked for, and where its features are kept."""
