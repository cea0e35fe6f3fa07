"""Batches: lines of requests that are sent while slots are idle. A process of its own, beside a
picker: `coxswain batch run`."""
