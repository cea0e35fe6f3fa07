"""Decisions: pure, synchronous state machines; no clock, no I/O, standard library only."""
