"""`make image-test`: builds the image and runs the compose stack, with a real Docker engine.

`engine.py` finds the engine or starts one of its own; `base_images.py` makes the images that no
registry gives; `clients.py` sends requests; `stack.py` scales, drains and restarts the stack as
docs/operations.md says, and asks a real Prometheus about it; `cluster.py` does the same with two
pickers that are a cluster, and kills the one that leads.
"""
