"""Ended requests for operators: in memory, in a file, and where their time went."""
