"""Kubernetes' API: one client for all that Coxswain reads and writes there."""
