"""Typed settings from flags, the environment and a YAML file; each error has its location.

settings = load_settings(Path("coxswain.yaml"), flags={"queue.timeout_s": 30})
"""

from extproc.settings.access import Access, certified_ip, profile_of, tls_profile
from extproc.settings.discovery_section import DiscoverySettings, DnsSettings
from extproc.settings.endpoint_section import EndpointSettings
from extproc.settings.endpoints_file import parse_endpoints
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.listen_section import ListenSettings
from extproc.settings.load import CONFIG_VARIABLE, load_settings
from extproc.settings.logging_section import LogSettings
from extproc.settings.model import Settings
from extproc.settings.problems import Problem, SettingsError
from extproc.settings.reference import settings_reference, settings_schema
from extproc.settings.routing_section import PickerSettings, QueueSettings, RoutingSettings
from extproc.settings.scraper_section import LedgerSettings, ScraperSettings
from extproc.settings.secrets import read_api_key, read_api_keys
from extproc.settings.security_section import AdminSettings, AgentsSettings

__all__ = [
    "CONFIG_VARIABLE",
    "Access",
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
    "certified_ip",
    "load_settings",
    "parse_endpoints",
    "profile_of",
    "read_api_key",
    "read_api_keys",
    "settings_reference",
    "settings_schema",
    "tls_profile",
]
