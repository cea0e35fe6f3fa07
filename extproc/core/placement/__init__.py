"""Which model is loaded on which machine."""
