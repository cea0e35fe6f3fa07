"""Measures speed and memory: `make bench`. All claims are ratios within one run."""
