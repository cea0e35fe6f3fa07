"""What is trusted and allowed: addresses, paths, certificates and keys. Pure."""
