"""LM Studio."""
