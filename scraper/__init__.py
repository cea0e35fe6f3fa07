"""Scrapes llama.cpp servers and turns their responses into observations."""
