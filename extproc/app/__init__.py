"""Builds a running endpoint picker from the settings.

It imports nothing: `coxswain agent`, `keeper` and `config envoy` need few of its modules, and all
of them take as long to load as a picker.
"""
