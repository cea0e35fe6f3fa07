"""Selects the endpoint for a request."""
