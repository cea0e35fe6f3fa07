"""Claims about extproc/envoy_config/credentials.py and transport.py."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extproc.envoy_config.clusters import llama
from extproc.envoy_config.options import EnvoyOptions, Mode, OptionsError, PickerTls, TlsProfile
from tests.envoy_config.parts import bootstrap, clusters_in, document, manager_in, read
from tests.fakes.authority import Authority
from tests.fakes.envoy_text import options_with


def parsed(options: EnvoyOptions) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The connection manager and the clusters, the servers' own among them."""
    content = document(replace(options, serves_cluster=False))
    return manager_in(content), clusters_in(content)


def test_nothing_of_it_unless_asked_for() -> None:
    """Without keys and certificates the configuration has no trace of them."""
    text = bootstrap(EnvoyOptions(serves_cluster=False))
    for word in ("header_to_metadata", "transport_socket", "UPSTREAM_METADATA"):
        assert word not in text


def test_where_clients_are_checked_nobody_passes_without_the_picker() -> None:
    """ext_proc fails closed, and what clients sent as their key is not kept for servers."""
    for is_checked in (False, True):
        manager, _ = parsed(EnvoyOptions(checks_clients=is_checked, injects_keys=True))
        text = str(manager)
        assert ("'failure_mode_allow': True" in text) is not is_checked
        assert ("header_to_metadata" in text) is not is_checked
        early = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
        assert {"remove": "x-coxswain-client"} in early


def test_a_servers_key_is_set_at_each_try() -> None:
    """First all is taken away, then the client's own is put back, then the server's if any."""
    _, clusters = parsed(EnvoyOptions(injects_keys=True))
    (options,) = clusters["llama"]["typed_extension_protocol_options"].values()
    steps = options["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]
    values = [step["append"]["header"]["value"] for step in steps if "append" in step]
    assert {"remove": "authorization"} in steps[:-2]
    assert values == [
        "%DYNAMIC_METADATA(coxswain:client_authorization)%",
        "%UPSTREAM_METADATA(coxswain:authorization)%",
    ]


def test_profiles_and_their_names() -> None:
    """Each profile trusts one authority and one name; an IP has no SNI; the rest is plain."""
    profiles = (
        TlsProfile(name="a", server_name="gpu.example", ca_file="/ca.pem"),
        TlsProfile(name="b", server_name="10.0.0.5"),
    )
    _, clusters = parsed(EnvoyOptions(tls_profiles=profiles))
    by_name, by_ip, plain = clusters["llama"]["transport_socket_matches"]
    assert by_name["match"] == {"coxswain_tls": "a"}
    context = by_name["transport_socket"]["typed_config"]
    assert context["sni"] == "gpu.example"
    checks = context["common_tls_context"]["validation_context"]
    assert checks["trusted_ca"] == {"filename": "/ca.pem"}
    assert checks["match_typed_subject_alt_names"] == [
        {"san_type": "DNS", "matcher": {"exact": "gpu.example"}}
    ]
    assert "sni" not in by_ip["transport_socket"]["typed_config"]
    assert plain["transport_socket"]["name"] == "envoy.transport_sockets.raw_buffer"


def test_one_profile_for_all_servers_of_a_ca() -> None:
    """The name to ask for and to find is the one that discovery tells of each server."""
    _, clusters = parsed(EnvoyOptions(tls_profiles=(TlsProfile(name="a", ca_file="/ca.pem"),)))
    context = clusters["llama"]["transport_socket_matches"][0]["transport_socket"]["typed_config"]
    assert context["auto_host_sni"] and context["auto_sni_san_validation"]
    assert "sni" not in context
    checks = context["common_tls_context"]["validation_context"]
    assert checks == {"trusted_ca": {"filename": "/ca.pem"}}


def test_the_picker_learns_the_capabilities_of_envoy() -> None:
    """All profiles, in as many headers as it takes, and whether servers get their keys."""
    names = [f"tls-{number:012}" for number in range(150)]
    profiles = tuple(TlsProfile(name=name) for name in names)
    _, clusters = parsed(EnvoyOptions(tls_profiles=profiles, injects_keys=True))
    source = clusters["llama"]["eds_cluster_config"]["eds_config"]["api_config_source"]
    told = source["grpc_services"][0]["initial_metadata"]
    assert {header["key"] for header in told} == {"x-coxswain-abilities"}
    assert ",".join(header["value"] for header in told).split(",") == [*names, "keys"]


def test_the_picker_learns_whether_the_routes_allow_connections_to_be_used_again() -> None:
    """As it asks for the cluster: the picker's own settings may be older, or newer."""
    options = options_with(reuse_connections=True)
    source = document(options)["dynamic_resources"]["cds_config"]["api_config_source"]
    (service,) = source["grpc_services"]
    told = {"key": "x-coxswain-abilities", "value": "keys,reuse"}
    assert service["initial_metadata"] == [told]


def test_without_discovery_there_is_no_place_for_them() -> None:
    """Told, rather than silently spoken to in the clear."""
    profile = TlsProfile(name="a", server_name="gpu.example")
    for options in ({"injects_keys": True}, {"tls_profiles": (profile,)}):
        with pytest.raises(OptionsError, match="discovery"):
            EnvoyOptions(mode=Mode.ORIGINAL_DST, **options)


def test_a_served_cluster_holds_cas_in_itself() -> None:
    """The listener is ready for keys, and says so; and nobody trusted is never everybody."""
    text = bootstrap(EnvoyOptions())
    assert "header_to_metadata" in text and "transport_socket" not in text
    cds = read(text)["dynamic_resources"]["cds_config"]["api_config_source"]
    told = cds["grpc_services"][0]["initial_metadata"]
    assert told == [{"key": "x-coxswain-abilities", "value": "keys"}]
    profile = TlsProfile(name="a", ca_pem="PEM")
    (context, _) = llama(EnvoyOptions(tls_profiles=(profile,))).transport_socket_matches
    assert b"PEM" in bytes(context)
    with pytest.raises(OptionsError, match="has no CA"):
        llama(EnvoyOptions(tls_profiles=(replace(profile, ca_pem=""),)))


@pytest.mark.e2e
def test_envoy_takes_all_of_it(tmp_path: Path) -> None:
    """`envoy --mode validate` with every option of this file at once."""
    authority = Authority(tmp_path)
    pair = authority.issue("envoy")
    options = EnvoyOptions(
        checks_clients=True,
        injects_keys=True,
        tls_profiles=(
            TlsProfile(name="a", server_name="gpu.example", ca_file=str(authority.ca)),
            TlsProfile(name="b", server_name="10.0.0.5", ca_file=str(authority.ca)),
        ),
        picker_tls=PickerTls(
            server_name="localhost",
            ca_file=str(authority.ca),
            cert_file=str(pair.cert),
            key_file=str(pair.key),
        ),
    )
    file = tmp_path / "envoy.yaml"
    file.write_text(bootstrap(replace(options, serves_cluster=False)), encoding="utf-8")
    envoy = shutil.which("envoy") or pytest.skip("there is no Envoy here")
    done = subprocess.run(
        [envoy, "--mode", "validate", "-c", str(file), "--use-dynamic-base-id"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
