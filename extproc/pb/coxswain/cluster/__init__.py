"""Generated from `proto/` by `make proto`; edit nothing here."""
