"""vLLM: its paths, and what its metrics say."""
