"""`make soak`: a million requests through real Envoy and the picker, more than the slots can serve.

`clients.py` sends them, in a process of its own; `stack.py` runs the servers, the picker and Envoy;
`samples.py` holds what was measured, and says whether it is flat; `audit.py` holds the accounts of
the picker against those of the clients; the page shows the run as charts.
"""
