"""What can be wrong with a server, in words for its operator. No text quotes an answer or a key."""

from __future__ import annotations

from extproc.core.observation import Issue

SLOW_SLOTS = "slow-slots"


def slots_disabled() -> Issue:
    return Issue(
        code="slots-disabled",
        message="the server does not show its slots, so only our own leases are counted",
        remedy="start llama-server with --slots (do not pass --no-slots)",
    )


def unauthorized(has_key: bool) -> Issue:
    return Issue(
        code="unauthorized",
        message=(
            "the server refuses the API key that is set for this endpoint"
            if has_key
            else "the server wants an API key and none is set for this endpoint"
        ),
        remedy=(
            "name one of the server's --api-key values by the endpoint's api_key_env or "
            "api_key_file, or by its agent's --api-key-file; until then only our own leases are "
            "counted, on as many slots as the endpoint's slots setting says"
        ),
    )


def slow_slots(waited_s: float) -> Issue:
    return Issue(
        code=SLOW_SLOTS,
        message=f"/slots has not answered for {waited_s:.0f} s, while /health does",
        remedy=(
            "long prompts hold the server between two steps; a smaller --ubatch-size makes its "
            "steps shorter. Known busy slots stay busy meanwhile"
        ),
    )


def slots_override_too_large(configured: int, told: int) -> Issue:
    return Issue(
        code="slots-override-too-large",
        message=f"{configured} slots are configured, the server has {told}",
        remedy="lower or remove the endpoint's slots setting: requests wait inside the server",
    )


def model_failed(names: tuple[str, ...]) -> Issue:
    shown = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
    return Issue(
        code="model-failed",
        message=f"the router could not load {shown}",
        remedy="see the router's own log for why the model's process ended",
    )


def unreachable(message: str) -> Issue:
    return Issue(
        code="unreachable",
        message=message,
        remedy="start llama-server there, or mend the address, the network or the firewall",
    )


def no_answer(message: str) -> Issue:
    return Issue(
        code="no-answer",
        message=message,
        remedy="see the server's log and load; it is asked again until it answers",
    )


def bad_answer(message: str) -> Issue:
    return Issue(
        code="bad-answer",
        message=message,
        remedy="check that a llama-server, and no other program or proxy, listens there",
    )


def internal_error(kind: str) -> Issue:
    return Issue(
        code="scraper-error",
        message=f"the scraper itself failed with {kind}",
        remedy="report it, with the traceback from the log",
    )


def no_model_loaded() -> Issue:
    return Issue(
        code="no-model-loaded",
        message="the router has no model loaded and loads none by itself",
        remedy="load one with POST /models/load, or start the router with --models-autoload",
    )
