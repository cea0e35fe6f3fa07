"""A small llama-server without a model: the same HTTP, the same slots, a service time to set.

It stands in where no `llama-server` can be built, and where a test wants a server whose speed
it decides. Each answer says that it is simulated.
"""
