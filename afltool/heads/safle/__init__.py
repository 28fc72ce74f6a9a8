"""The SAFLe head: codes of bucketed features, looked up in tables and added."""
