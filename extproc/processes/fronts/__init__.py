"""Fronts hold Envoy's calls, the core serves them: what both sides say to each other."""
