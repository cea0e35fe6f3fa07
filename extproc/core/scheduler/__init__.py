"""Decides each request and keeps all state of the core consistent."""
