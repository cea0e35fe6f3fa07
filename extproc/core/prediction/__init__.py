"""What was learned: latencies, prompt caches, sessions."""
