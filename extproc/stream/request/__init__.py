"""Reads one request: its headers, path, body and hints."""
