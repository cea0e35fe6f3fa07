"""The kinds of servers: what each reports, and its API; one package for each."""
