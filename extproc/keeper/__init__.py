"""The keeper: starts, watches and stops the llama-servers of one machine."""
