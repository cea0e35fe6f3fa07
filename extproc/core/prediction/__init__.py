"""What was learned: latencies, prefix caches, sessions."""
