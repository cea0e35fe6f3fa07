"""An endpoint picker of the Gateway API Inference Extension, such as llm-d's, as a rival.

It finds its servers as Pods of a Kubernetes API server only, so each run has one (`make kubernetes`
builds it), with one Pod on loopback that has a port for each server. Plugins and flags are those of
the extension's chart, and Envoy before it has what the extension's own Envoy has.
"""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from bench.compare.proxy import FILTERS, TIMEOUT_S, Proxy, Servers, listener, members
from bench.rig import Rig
from extproc.demo.port import LOOPBACK, free_ports
from tests.fakes.kubernetes import NAMESPACE, Kubernetes

WINDOW_BYTES: Final = {
    "initial_stream_window_size": 65_536,
    "initial_connection_window_size": 1_048_576,
}
CONNECTIONS: Final = 40_000
PLUGINS: Final = """\
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
"""
"""What its chart configures."""
QUEUED_METRIC: Final = "llamacpp:requests_deferred"
"""Its queue scorer reads it; llama-server has no gauges of its cache and of adapters."""


async def inference_extension(
    rig: Rig, servers: Servers, *, binary: Path, has_tls: bool = False
) -> Proxy:
    """Start an API server, the picker of this binary, and Envoy before it. With `has_tls` Envoy
    speaks TLS with the picker, as is its default, and trusts any certificate."""
    folder = rig.folder / ("picker-by-tls" if has_tls else "picker")
    folder.mkdir()
    api = await rig.dependencies.enter_async_context(Kubernetes(folder))
    await api.put_pod("servers", LOOPBACK)
    config = folder / "plugins.yaml"
    config.write_text(PLUGINS)
    grpc, health, metrics = free_ports(3)
    flags: dict[str, object] = {
        "endpoint-selector": "app=llama",
        "endpoint-target-ports": ",".join(map(str, servers)),
        "config-file": config,
        "grpc-port": grpc,
        "grpc-health-port": health,
        "metrics-port": metrics,
        "metrics-endpoint-auth": "false",
        "secure-serving": str(has_tls).lower(),
        "total-queued-requests-metric": QUEUED_METRIC,
        "kv-cache-usage-percentage-metric": "",
        "lora-info-metric": "",
        "cache-info-metric": "",
        "tracing": "false",
        "v": 1,
        "zap-encoder": "json",
    }
    command = [str(binary), *(f"--{name}={value}" for name, value in flags.items())]
    picker, _ = await rig.start_listening(
        f"picker-{grpc}",
        command,
        grpc,
        {
            **os.environ,
            "KUBECONFIG": str(api.kubeconfig()),
            "NAMESPACE": NAMESPACE,
            "POD_NAME": "picker-0123456789-abcde",
        },
    )
    [port] = free_ports(1)
    tree = yaml.safe_dump(envoy_before_picker(port, grpc, has_tls=has_tls))
    proxy, _ = await rig.run_envoy(f"envoy-{port}", tree, port)
    return Proxy(port=port, children=(picker, proxy))


def envoy_before_picker(port: int, picker_port: int, *, has_tls: bool = False) -> dict[str, Any]:
    """A configuration of Envoy as the extension's tests have it, with bodies in both directions."""
    extensions = FILTERS.removesuffix(".filters")
    external_processor = {
        "@type": f"{FILTERS}.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "10s"},
        "processing_mode": {
            "request_header_mode": "SEND",
            "response_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "response_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_trailer_mode": "SEND",
        },
        "message_timeout": "1000s",
    }
    picker: dict[str, Any] = {
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{extensions}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": WINDOW_BYTES},
            }
        },
        "circuit_breakers": _limits(),
        "load_assignment": members("picker", {picker_port: 1}),
    }
    if has_tls:
        picker["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{extensions}.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"]},
            },
        }
    servers = {
        "name": "servers",
        "type": "ORIGINAL_DST",
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "circuit_breakers": _limits(),
        "original_dst_lb_config": {
            "use_http_header": True,
            "http_header_name": "x-gateway-destination-endpoint",
        },
    }
    route = {"cluster": "servers", "timeout": f"{TIMEOUT_S}s", "idle_timeout": f"{TIMEOUT_S}s"}
    filters = [{"name": "ext_proc", "typed_config": external_processor}]
    return {
        "static_resources": {
            "listeners": [listener(port, route, filters)],
            "clusters": [servers, picker],
        }
    }


def _limits() -> dict[str, Any]:
    names = ("max_connections", "max_pending_requests", "max_requests")
    return {"thresholds": [dict.fromkeys(names, CONNECTIONS)]}
