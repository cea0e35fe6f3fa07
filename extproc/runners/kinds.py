"""The kinds of servers, by name, and the probe of each."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from extproc.runners.auto import AutoProbe, Detect, Usual
from extproc.runners.kind import RunnerKind
from extproc.runners.llama_server.probe import PROPS_PATH, LlamaServerProbe, has_no_props
from extproc.runners.lm_studio.paths import LM_STUDIOS_MODELS_PATH
from extproc.runners.lm_studio.probe import LmStudioProbe
from extproc.runners.ollama.paths import TAGS_PATH, VERSION_PATH
from extproc.runners.ollama.probe import OllamaProbe, lists_tags
from extproc.runners.openai.paths import MODELS_PATH
from extproc.runners.openai.probe import OpenAIProbe
from extproc.runners.probe import OpenProbe, Probe, ProbeOptions
from extproc.runners.sglang.paths import LOADS_PATH
from extproc.runners.sglang.probe import SglangProbe
from extproc.runners.target import EndpointTarget
from extproc.runners.vllm.probe import (
    METRICS_PATH,
    VERSION_OF_VLLM,
    VllmProbe,
    has_no_stats,
    is_vllms_list,
)

PROBES: Final[Mapping[RunnerKind, OpenProbe]] = MappingProxyType(
    {
        RunnerKind.LLAMA_SERVER: LlamaServerProbe,
        RunnerKind.OLLAMA: OllamaProbe,
        RunnerKind.VLLM: VllmProbe,
        RunnerKind.SGLANG: SglangProbe,
        RunnerKind.LM_STUDIO: LmStudioProbe,
        RunnerKind.OPENAI: OpenAIProbe,
    }
)
WITHOUT_STATS: Final = ((METRICS_PATH, has_no_stats), (MODELS_PATH, is_vllms_list))
"""A vLLM that counts no requests; its metrics must be such as its probe reads."""
WITH_TAGS: Final = ((TAGS_PATH, lists_tags),)
"""llama-swap has a version at Ollama's path, too."""
USUAL: Final = Usual(PROPS_PATH, has_no_props, LlamaServerProbe)
DETECTS: Final = (
    Detect(LOADS_PATH, b'"loads"', SglangProbe),  # it answers at paths of Ollama's, too
    Detect(VERSION_PATH, b'"version"', OllamaProbe, WITH_TAGS),
    Detect(METRICS_PATH, b"vllm:num_requests_running", VllmProbe),
    Detect(LM_STUDIOS_MODELS_PATH, b'"loaded_instances"', LmStudioProbe),
    Detect(VERSION_OF_VLLM, b'"version"', VllmProbe, WITHOUT_STATS),
    Detect(MODELS_PATH, b'"data"', OpenAIProbe),
)
"""How a server that is no llama-server is recognised, in this order."""


def open_probe(
    target: EndpointTarget,
    options: ProbeOptions,
    clock: Callable[[], float],
    *,
    lost_s: Callable[[float], float],
    wants_counters: Callable[[], bool],
) -> Probe:
    """The probe for a target: see `OpenProbe`."""

    def of(opens: OpenProbe) -> Probe:
        return opens(target, options, clock, lost_s=lost_s, wants_counters=wants_counters)

    if target.kind is not RunnerKind.AUTO:
        return of(PROBES[target.kind])
    return AutoProbe(target, options, clock, lost_s, USUAL, DETECTS, of)
