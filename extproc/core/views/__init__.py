"""Reads the state of the core, for people and for the code outside; changes nothing."""
