"""The slots of each endpoint: who leases them, who else uses them, how many are free."""
