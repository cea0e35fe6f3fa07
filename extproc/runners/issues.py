"""The issues of servers, with remedies for operators. No text quotes a response or a key."""

from dataclasses import replace

from extproc.core.observation import Issue

SLOW_SLOTS = "slow-slots"
BAD_ANSWER = "bad-answer"


def slots_disabled() -> Issue:
    return Issue(
        code="slots-disabled",
        message="the server does not report its slots, so only the picker's own leases are counted",
        remedy="start llama-server with --slots (do not pass --no-slots)",
    )


def key_rejected() -> Issue:
    return Issue(
        code="unauthorized",
        message="the server rejects the API key that requests to this endpoint are sent with",
        remedy=(
            "set api_key_env or api_key_file of the endpoint to a key that the server knows; until "
            "then it gets no requests"
        ),
    )


def unauthorized(has_key: bool) -> Issue:
    return Issue(
        code="unauthorized",
        message=(
            "the server rejects the API key that is configured for this endpoint"
            if has_key
            else "the server requires an API key, and none is configured for this endpoint"
        ),
        remedy=(
            "set api_key_env or api_key_file of the endpoint, or --api-key-file of its agent, "
            "to one of the server's --api-key values; until then only the picker's own leases "
            "are counted, on the number of slots in the endpoint's slots setting"
        ),
    )


def models_unauthorized(has_key: bool) -> Issue:
    """Of a server that shows everything else."""
    return replace(
        unauthorized(has_key),
        remedy="set api_key_env or api_key_file of the endpoint to one of the server's --api-key "
        "values; until then its models are not known",
    )


def slow_slots(waited_s: float) -> Issue:
    return Issue(
        code=SLOW_SLOTS,
        message=f"/slots has not answered for {waited_s:.0f} s, while /health does",
        remedy=(
            "long prompts keep the server busy between two answers; a smaller --batch-size "
            "shortens its steps. Slots that were busy count as busy until it answers"
        ),
    )


def slots_override_too_large(configured: int, reported: int) -> Issue:
    return Issue(
        code="slots-override-too-large",
        message=f"{configured} slots are configured, but the server has {reported}",
        remedy="lower or remove the endpoint's slots setting; until then, requests wait inside "
        "the server",
    )


def model_failed(names: tuple[str, ...]) -> Issue:
    shown = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
    return Issue(
        code="model-failed",
        message=f"the router could not load {shown}",
        remedy="check the router's log to see why the model's process ended",
    )


def unreachable(message: str) -> Issue:
    return Issue(
        code="unreachable",
        message=message,
        remedy="start llama-server there, or fix the address, the network or the firewall",
    )


def no_answer(message: str) -> Issue:
    return Issue(
        code="no-answer",
        message=message,
        remedy="check the server's log and load; the scraper retries until it answers",
    )


def bad_answer(message: str) -> Issue:
    return Issue(
        code=BAD_ANSWER,
        message=message,
        remedy="check that a server of models listens there, and of the kind that its setting says",
    )


def internal_error(kind: str) -> Issue:
    return Issue(
        code="scraper-error",
        message=f"the scraper itself failed with {kind}",
        remedy="report this bug with the traceback from the log",
    )


def no_model_loaded() -> Issue:
    return Issue(
        code="no-model-loaded",
        message="the router has no model loaded and does not load models on demand",
        remedy="load one with POST /models/load, or start the router with --models-autoload",
    )


def metrics_disabled() -> Issue:
    return Issue(
        code="metrics-disabled",
        message="the server does not report its requests, so only the picker's own leases are "
        "counted",
        remedy="start vLLM without --disable-log-stats",
    )


def sleeps_until_called() -> Issue:
    return Issue(
        code="asleep",
        message="it sleeps, and no request wakes it",
        remedy="send it POST /wake_up",
    )
