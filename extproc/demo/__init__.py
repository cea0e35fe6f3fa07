"""`coxswain up`: Envoy, the picker and an embedded fleet of llama-servers in one command."""
