"""The decisions: pure, synchronous state machines; no clock, no I/O, standard library only."""
