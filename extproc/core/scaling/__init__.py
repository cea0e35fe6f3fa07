"""How many servers each model needs."""
