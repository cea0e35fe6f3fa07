"""The scraper beside its llama-server: reports observations to the picker over one gRPC stream.

This is the one part of `scraper` that knows our messages (`extproc.pb`): it is a program of
its own, which shares nothing else with the picker.
"""

from scraper.agent.agent import Agent, AgentOptions
