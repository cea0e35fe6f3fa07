"""llama-server: one scrape of it, its HTTP API, and the meaning of its responses."""
