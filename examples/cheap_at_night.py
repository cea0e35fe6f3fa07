"""From 22 to 6 o'clock, machines without the label `price: cheap` cost 5 seconds more."""

import time

from extproc.rules.v1 import Endpoint, Request, Rule


class CheapAtNight(Rule):
    def cost(self, request: Request, endpoint: Endpoint) -> float:
        is_night = not 6 <= time.localtime(request.time).tm_hour < 22
        return 5.0 if is_night and endpoint.labels.get("price") != "cheap" else 0.0
