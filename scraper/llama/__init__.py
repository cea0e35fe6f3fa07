"""Speaks to one llama-server: its HTTP API, and what its answers mean."""
