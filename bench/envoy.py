"""What a request costs Envoy, and what each part of its configuration adds."""

from collections.abc import Callable
from statistics import median
from typing import Any

from bench.result import Row, Say, Section, at_most
from bench.rig import Rig, remove_picker_filter
from bench.rounds import CONNECTIONS, Contender, take_turns

ROUNDS = 12
ROUND_S = 1.0
BODY_BYTES = 300
WHOLE = "as it is generated"
PLAIN = "without the picker and all below"

Tree = dict[str, Any]
Edit = Callable[[Tree], None]
"""Takes a part out of Envoy's configuration."""


async def measure(say: Say) -> Section:
    """Alternate between Envoys before the same picker, each without one part."""
    contenders = []
    async with Rig() as rig:
        _, picker = await rig.start_picker(await rig.start_stand_ins(1, 256))
        for what, edit in EDITS.items():
            say(f"envoy: starting one {what}")
            child, port = await rig.start_envoy(picker, access_log=True, edit=edit)
            parts = {"envoy": [child.pid]}
            contenders.append(Contender(name=what, port=port, parts=parts, body_bytes=BODY_BYTES))
        await take_turns("envoy", contenders, ROUNDS, ROUND_S, say)
    used_us = {one.name: one.used_us["envoy"] for one in contenders}
    whole = used_us[WHOLE]

    def saved(what: str) -> float:
        return median(one - other for one, other in zip(whole, used_us[what], strict=True))

    return Section(
        title="Envoy",
        method=f"processor time of Envoy for a request, {CONNECTIONS} connections, bodies of "
        f"{BODY_BYTES} bytes are read; medians of {ROUNDS} rounds of {ROUND_S:g} s for each "
        "configuration in turn",
        rows=(
            at_most(f"Envoy's processor time, {WHOLE}", median(whole), 240, " us"),
            *(
                Row(what=f"Envoy's processor time, {what}", value=f"{median(used):.0f} us")
                for what, used in used_us.items()
                if what in (WITHOUT_PICKER, PLAIN)
            ),
            *(
                Row(what=f"saved {what}", value=f"{saved(what):.0f} us")
                for what in used_us
                if what.startswith("without") and what not in (WITHOUT_PICKER, PLAIN)
            ),
        ),
    )


def _manager(tree: Tree) -> Tree:
    """The configuration of the HTTP connection manager."""
    (listener,) = tree["static_resources"]["listeners"]
    manager: Tree = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def _filter(tree: Tree, name: str) -> Tree:
    filters = _manager(tree)["http_filters"]
    found: Tree = next(each for each in filters if each["name"].endswith(name))
    return found


def _processor(tree: Tree) -> Tree:
    config: Tree = _filter(tree, "ext_proc")["typed_config"]
    inner: Tree = config.get("extension_config", {}).get("typed_config", config)
    return inner


def _access_log(tree: Tree) -> None:
    logs = _manager(tree)["access_log"]
    _manager(tree)["access_log"] = [each for each in logs if "stdout" not in each["name"]]


def _reports(tree: Tree) -> None:
    logs = _manager(tree)["access_log"]
    _manager(tree)["access_log"] = [each for each in logs if "grpc" not in each["name"]]
    _manager(tree).pop("access_log_options")


def _path_rules(tree: Tree) -> None:
    (host,) = _manager(tree)["route_config"]["virtual_hosts"]
    host["routes"] = host["routes"][-1:]


def _retries(tree: Tree) -> None:
    (host,) = _manager(tree)["route_config"]["virtual_hosts"]
    host["routes"][-1]["route"].pop("retry_policy")


def _header_checks(tree: Tree) -> None:
    for name in (
        "early_header_mutation_extensions",
        "normalize_path",
        "merge_slashes",
        "path_with_escaped_slashes_action",
    ):
        _manager(tree).pop(name)


def _key_memory(tree: Tree) -> None:
    _manager(tree)["http_filters"].remove(_filter(tree, "header_to_metadata"))


def _local_replies(tree: Tree) -> None:
    """And the matcher that lets them pass the picker."""
    _manager(tree).pop("local_reply_config")
    _filter(tree, "ext_proc")["typed_config"] = _processor(tree)


def _response_facts(tree: Tree) -> None:
    _processor(tree).pop("response_attributes")


def _limits(tree: Tree) -> None:
    tree.pop("overload_manager")
    for name in ("request_timeout", "request_headers_timeout", "stream_flush_timeout"):
        _manager(tree).pop(name)


PARTS: dict[str, Edit] = {
    "without the access log": _access_log,
    "without reports to the picker": _reports,
    "without the rules about paths": _path_rules,
    "without retries": _retries,
    "without checks of headers": _header_checks,
    "without the memory of clients' keys": _key_memory,
    "without texts of rejections": _local_replies,
    "without who served": _response_facts,
    "without timeouts and bounds": _limits,
}
WITHOUT_PICKER = "without the picker"


def _plain(tree: Tree) -> None:
    for edit in PARTS.values():
        edit(tree)
    remove_picker_filter(tree)


EDITS: dict[str, Edit] = {
    WHOLE: lambda _: None,
    **PARTS,
    WITHOUT_PICKER: remove_picker_filter,
    PLAIN: _plain,
}
