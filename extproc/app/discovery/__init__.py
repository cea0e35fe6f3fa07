"""Brings the sources of endpoints together, for the scraper, Envoy and the core."""
