"""Any server that has OpenAI's API: what it lists, and the paths that all servers have."""
