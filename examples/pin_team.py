"""The team `vision` gets the two machines with its cards, and nobody else does."""

from extproc.rules.v1 import Endpoint, Request, Rule


class PinTeam(Rule):
    def filter(self, request: Request, endpoint: Endpoint) -> bool | str:
        if endpoint.name in {"gpu-1", "gpu-2"}:
            return request.tenant == "vision" or "it belongs to the team vision"
        return request.tenant != "vision" or "the team vision has its own machines"
