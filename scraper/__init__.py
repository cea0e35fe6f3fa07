"""Reads llama.cpp servers and turns their answers into observations."""
