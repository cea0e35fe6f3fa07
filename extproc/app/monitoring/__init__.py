"""What the picker observes of itself and of the Envoys in front of it."""
