"""The endpoints, what they serve, and what the names in a request mean."""
