"""The call that explains the decision about a request."""

from dataclasses import asdict
from typing import Final

from extproc.admin import arguments
from extproc.admin.call_errors import Context, invalid, maps_errors
from extproc.admin.dependencies import AdminCalls
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MAX_PATH_CHARS: Final = 8192
MAX_HEADERS: Final = 200
MAX_BODY_BYTES: Final = 1024 * 1024


class ExplainCalls(AdminCalls):
    """Explain; nothing of the request is kept or logged."""

    @maps_errors
    async def Explain(  # noqa: N802  # gRPC names it
        self, request: pb.ExplainRequest, _: Context
    ) -> pb.ExplainResponse:
        path = request.path or "/v1/chat/completions"
        if not path.startswith("/") or len(path) > MAX_PATH_CHARS:
            raise invalid(
                f"path: it must begin with / and have at most {MAX_PATH_CHARS} characters"
            )
        if len(request.headers) > MAX_HEADERS:
            raise invalid(
                f"headers: {len(request.headers)} given; at most {MAX_HEADERS} are allowed"
            )
        if len(request.body) > MAX_BODY_BYTES:
            raise invalid(f"body: give at most its first {MAX_BODY_BYTES} bytes")
        inquiry = DryRunRequest(
            method=request.method.upper() or "POST",
            path=path,
            headers=dict(request.headers),
            body=request.body,
            client=request.client,
            pool=arguments.find_pool(self._dispatcher.view.pools, request.pool),
        )
        explanation = self._dependencies.explain(inquiry)
        message = pb.ExplainResponse(
            decision=_decision(explanation),
            reason=explanation.reason.value if explanation.reason is not None else "",
            chosen=str(explanation.chosen) if explanation.chosen is not None else "",
            chosen_name=""
            if explanation.chosen is None
            else self._dispatcher.fleet.name_of(explanation.chosen),
            queue_position=explanation.position,
            expected_s=explanation.expected_s,
            resolved=explanation.resolved,
            note=explanation.note,
        )
        for candidate in explanation.candidates:
            message.candidates.add(
                address=str(candidate.address),
                name=candidate.name,
                filtered=candidate.filtered,
                rank=candidate.rank,
                scores=[pb.ExplainResponse.Score(**asdict(each)) for each in candidate.scores],
            )
        return message


def _decision(explanation: Explanation) -> pb.ExplainResponse.Decision:
    if explanation.reason is not None:
        return pb.ExplainResponse.DECISION_REJECTED
    if not explanation.takes_slot:
        return pb.ExplainResponse.DECISION_PASSED
    if explanation.chosen is not None:
        return pb.ExplainResponse.DECISION_PICKED
    return pb.ExplainResponse.DECISION_QUEUED
