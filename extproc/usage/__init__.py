"""Counts what clients use: requests, tokens and slot-seconds by client, objective and model."""
