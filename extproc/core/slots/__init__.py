"""The slots of each endpoint: leased, foreign and free."""
