"""What is trusted and allowed: addresses, paths, certificates and keys. Pure, but for the files of
secrets."""
