"""Typed settings from flags, the environment and a YAML file; every mistake is named by its place.

settings = load_settings(Path("coxswain.yaml"), flags={"queue.timeout_s": 30})
"""

from __future__ import annotations

from extproc.settings.discovery_section import DiscoverySettings, DnsSettings
from extproc.settings.endpoints_file import parse_endpoints
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.load import CONFIG_VARIABLE, load_settings
from extproc.settings.model import (
    EndpointSettings,
    LedgerSettings,
    ListenSettings,
    LogSettings,
    PickerSettings,
    QueueSettings,
    RoutingSettings,
    ScraperSettings,
    Settings,
)
from extproc.settings.problems import Problem, SettingsError
from extproc.settings.reference import settings_reference, settings_schema
from extproc.settings.safety_section import AdminSettings, AgentsSettings
from extproc.settings.secrets import read_api_key, read_api_keys

__all__ = [
    "CONFIG_VARIABLE",
    "AdminSettings",
    "AgentsSettings",
    "DiscoverySettings",
    "DnsSettings",
    "EndpointSettings",
    "EnvoySettings",
    "LedgerSettings",
    "ListenSettings",
    "LogSettings",
    "PickerSettings",
    "Problem",
    "QueueSettings",
    "RoutingSettings",
    "ScraperSettings",
    "Settings",
    "SettingsError",
    "load_settings",
    "parse_endpoints",
    "read_api_key",
    "read_api_keys",
    "settings_reference",
    "settings_schema",
]
