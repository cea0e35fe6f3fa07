"""Decides on each request, and keeps all of the core's books in step."""
