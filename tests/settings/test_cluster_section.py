"""Claims about extproc/settings/cluster_section.py."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from extproc.settings import load_settings
from extproc.settings.cluster_section import ClusterSettings

COMPLETE: dict[str, Any] = {
    "name": "prod",
    "valkey": "redis://10.0.0.9:6379",
    "advertise": "10.0.0.2:9004",
}


def test_it_is_off_without_a_name() -> None:
    assert ClusterSettings().name == ""


def test_the_shortest_cluster_has_three_settings() -> None:
    found = ClusterSettings(**COMPLETE)
    assert found.valkey == ("redis://10.0.0.9:6379",)
    assert found.lease_s == 2.0
    assert found.without_engine == "stay"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"valkey": ""}, "needs valkey"),
        ({"advertise": None}, "needs advertise"),
        ({"advertise": "0.0.0.0:9004"}, "only for listening"),
        ({"valkey": "10.0.0.9:6379"}, "redis://"),
        ({"valkey": "redis://:secret@v:6379"}, "COXSWAIN_VALKEY_PASSWORD"),
        ({"valkey": "redis://v:6379?password=secret"}, "remove what follows"),
        ({"valkey": "redis://v:1,redis://w:1"}, "sentinel"),
        ({"cert_file": "a.pem"}, "together"),
        ({"token_env": "A", "token_file": "b"}, "not both"),
        ({"valkey_password_env": "A", "valkey_password_file": "b"}, "not both"),
        ({"lease_s": 0.1}, "greater than or equal"),
        ({"without_engine": "wait"}, "stay"),
        ({"name": "a b"}, "pattern"),
        ({"kubernetes": True}, "not both"),
        ({"kubernetes": True, "valkey": "", "name": "Prod"}, "lower-case"),
        ({"kubernetes_namespace": "a/b"}, "lower-case letters"),
        ({"kubernetes_api": "10.0.0.1:443"}, "https://host:port"),
        ({"kubernetes_api": "https://user:secret@k:443"}, "https://host:port"),
        ({"kubernetes_api": "https://k:443/api"}, "https://host:port"),
    ],
)
def test_a_mistake_is_one_clear_error(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as caught:
        ClusterSettings(**{**COMPLETE, **values})
    assert "secret" not in str(caught.value)


def test_kubernetes_takes_the_place_of_valkey() -> None:
    found = ClusterSettings(**{**COMPLETE, "valkey": "", "kubernetes": True})
    assert found.kubernetes_api is None
    found = ClusterSettings(
        **{**COMPLETE, "valkey": "", "kubernetes": True, "kubernetes_api": "https://k:6443/"}
    )
    assert found.kubernetes_api == "https://k:6443"


def test_sentinels_are_several_addresses() -> None:
    found = ClusterSettings(**{**COMPLETE, "valkey": "redis://v:1,redis://w:1", "sentinel": "m"})
    assert len(found.valkey) == 2


@pytest.mark.parametrize("name", ["COXSWAIN_CLUSTER_TOKEN", "COXSWAIN_VALKEY_PASSWORD"])
def test_the_variables_with_secrets_are_no_settings(name: str) -> None:
    """They are read where the secrets are used."""
    load_settings(None, environ={name: "secret"})
