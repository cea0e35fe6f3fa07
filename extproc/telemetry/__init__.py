"""Metrics, traces and StatsD, from records of the core.

The only package that imports opentelemetry. Nothing here can slow a request: what is slow
runs in threads of its own behind bounded queues.
"""
