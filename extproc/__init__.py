"""Coxswain: the endpoint picker that Envoy asks where each llama.cpp request should go."""
