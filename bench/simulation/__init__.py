"""A discrete-event simulation of fleets, in which the real core decides beside simple balancers."""
