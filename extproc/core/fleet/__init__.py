"""The endpoints, the models they serve, and the resolution of the names in requests."""
