"""The client of one llama-server: its HTTP API, and the meaning of its responses."""
