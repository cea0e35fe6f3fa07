"""Ollama: its API, and what it says of its models. It shows neither slots nor running requests."""
