"""`make chaos`: everything fails, in an order that a seed decides; then every request is audited.

`script.py` draws what happens, `stage.py` runs the processes, `front.py` stands before each server
and records what reaches it, `load.py` plays the clients, `accounting.py` judges the records.
"""
