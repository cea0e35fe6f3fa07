"""The same requests through Coxswain and through what people have instead, over real sockets.

`make compare` runs it. A *cell* is one trace at one load on one fleet; in a cell every *rival* gets
a fleet of its own and the same requests at the same moments.
"""
