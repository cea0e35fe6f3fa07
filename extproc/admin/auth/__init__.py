"""Authentication: tokens, certificates and addresses."""
