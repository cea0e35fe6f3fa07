"""Claims about extproc/kubernetes/service_account.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.kubernetes.service_account import (
    ServiceAccountError,
    default_api_server,
    find_service_account,
)
from tests.fakes.authority import Authority


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "https://10.96.0.1:443"),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443"},
            "https://[fd00::1]:6443",
        ),
    ],
)
def test_a_pod_knows_its_api_server(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str
) -> None:
    for name in ("HOST", "PORT", "PORT_HTTPS"):
        monkeypatch.delenv(f"KUBERNETES_SERVICE_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_api_server() == url


def test_what_is_set_goes_before_what_the_pod_has(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("serving\n")
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path).ca.read_bytes())
    found = find_service_account("https://k:6443", None, str(tmp_path))
    assert (found.url, found.namespace, found.folder) == ("https://k:6443", "serving", tmp_path)
    assert find_service_account("https://k:6443", "other", str(tmp_path)).namespace == "other"


def test_what_is_missing_is_named_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ServiceAccountError, match="no pod of Kubernetes") as caught:
        find_service_account(None, None, str(tmp_path))
    assert caught.value.key == "kubernetes_api"
    with pytest.raises(ServiceAccountError, match="cannot be read") as caught:
        find_service_account("https://k:1", None, str(tmp_path))
    assert caught.value.key == "kubernetes_namespace"
    (tmp_path / "namespace").write_text("\n")
    with pytest.raises(ServiceAccountError, match="is empty"):
        find_service_account("https://k:1", None, str(tmp_path))
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ServiceAccountError, match=r"ca\.crt: it holds no CA") as caught:
        find_service_account("https://k:1", "serving", str(tmp_path))
    assert caught.value.key == "kubernetes_folder"
