"""What a request costs Envoy, and what each part of its configuration adds."""

from collections.abc import Callable
from statistics import median

from bench.envoy_tree import Tree, http_filter, manager, pass_over_picker, processor, routes
from bench.result import Row, Say, Section, at_most
from bench.rig import Rig
from bench.rounds import CONNECTIONS, Contender, take_turns

ROUNDS = 12
ROUND_S = 1.0
BODY_BYTES = 300
WHOLE = "as it is generated"
PLAIN = "without the picker and all below"

Edit = Callable[[Tree], object]
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


def _reports(tree: Tree) -> None:
    _remove_log(tree, "grpc")
    manager(tree).pop("access_log_options")


def _remove_log(tree: Tree, kind: str) -> None:
    logs = manager(tree)["access_log"]
    logs[:] = [each for each in logs if kind not in each["name"]]


def _path_rules(tree: Tree) -> None:
    del routes(tree)[:-1]


def _header_checks(tree: Tree) -> None:
    for name in (
        "early_header_mutation_extensions",
        "normalize_path",
        "merge_slashes",
        "path_with_escaped_slashes_action",
    ):
        manager(tree).pop(name)


def _local_replies(tree: Tree) -> None:
    """And the matcher that lets them pass the picker."""
    manager(tree).pop("local_reply_config")
    http_filter(tree, "ext_proc")["typed_config"] = processor(tree)


def _limits(tree: Tree) -> None:
    tree.pop("overload_manager")
    for name in ("request_timeout", "request_headers_timeout", "stream_flush_timeout"):
        manager(tree).pop(name)


PARTS: dict[str, Edit] = {
    "without the access log": lambda tree: _remove_log(tree, "stdout"),
    "without reports to the picker": _reports,
    "without the rules about paths": _path_rules,
    "without retries": lambda tree: routes(tree)[-1]["route"].pop("retry_policy"),
    "without checks of headers": _header_checks,
    "without the memory of clients' keys": lambda tree: manager(tree)["http_filters"].remove(
        http_filter(tree, "header_to_metadata")
    ),
    "without texts of rejections": _local_replies,
    "without who served": lambda tree: processor(tree).pop("response_attributes"),
    "without timeouts and bounds": _limits,
}
WITHOUT_PICKER = "without the picker"


def _plain(tree: Tree) -> None:
    for edit in PARTS.values():
        edit(tree)
    pass_over_picker(tree)


EDITS: dict[str, Edit] = {
    WHOLE: lambda _: None,
    **PARTS,
    WITHOUT_PICKER: pass_over_picker,
    PLAIN: _plain,
}
