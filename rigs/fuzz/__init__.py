"""Random bytes for all parsers of untrusted input.

`make fuzz` runs each target under atheris, which looks for inputs that reach new code; where it
cannot be installed, the corpus is changed at random. `make test` replays the corpus.
"""
