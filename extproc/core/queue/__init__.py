"""Requests that wait for a slot, and which of them is next."""
