"""Endpoints that fail requests while they look healthy, and requests that kill servers."""
