"""What the status pages read."""
