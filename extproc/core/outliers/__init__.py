"""Outlier detection: endpoints that fail requests while healthy, and requests that kill servers."""
