"""Combines the sources of endpoints for the scraper, Envoy and the core."""
