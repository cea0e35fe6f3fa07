"""Several machines serve one queue: who leads, as an engine such as Valkey says it."""
