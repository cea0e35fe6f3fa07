"""A small llama-server without a model: the same HTTP API and slots, with a set service time.

It replaces a `llama-server` that cannot be built, and serves tests that need a server of a given
speed. Each response says that it is simulated.
"""
