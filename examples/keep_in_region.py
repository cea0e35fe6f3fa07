"""Requests of the tenants in `HOME` go only to machines whose label `region` is theirs."""

from extproc.rules.v1 import Endpoint, Request, Rule

HOME = {"clinic": "eu", "bank": "ch"}


class KeepInRegion(Rule):
    def filter(self, request: Request, endpoint: Endpoint) -> bool | str:
        home = HOME.get(request.tenant)
        if home is None or endpoint.labels.get("region") == home:
            return True
        return f"the data of {request.tenant} stays in {home}"
