"""Queued requests, and which of them is served next."""
