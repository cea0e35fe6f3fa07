"""Typed settings from flags, the environment and a YAML file; each error has its location.

settings = load_settings(Path("coxswain.yaml"), flags={"queue.timeout_s": 30})
"""

from extproc.settings.access import Access, certified_ip, profile_of, tls_profile
from extproc.settings.discovery_section import DiscoverySettings, DnsSettings
from extproc.settings.endpoint_section import EndpointSettings
from extproc.settings.endpoints_file import parse_endpoints
from extproc.settings.kubernetes_section import KubernetesSettings
from extproc.settings.load import CONFIG_VARIABLE, load_settings
from extproc.settings.logging_section import LogSettings
from extproc.settings.model import Settings
from extproc.settings.problems import Problem, SettingsError
from extproc.settings.reference import settings_reference, settings_schema
from extproc.settings.routing_section import QueueSettings
from extproc.settings.scraper_section import ScraperSettings
from extproc.settings.secrets import read_api_key, read_api_keys
from extproc.settings.security_section import AdminSettings, AgentsSettings
