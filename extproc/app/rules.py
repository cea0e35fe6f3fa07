"""The operators' own rules as the settings name them."""

from pathlib import Path

from extproc.rules import v1
from extproc.rules.active_rules import ActiveRules
from extproc.rules.loading import RuleError, load_rules
from extproc.settings import EndpointSettings, Problem, Settings, SettingsError


def read_rules(settings: Settings) -> ActiveRules | None:
    """Load the rules and try each; None without any. Raises `SettingsError`. Runs their code, and
    blocks on the disk."""
    routing = settings.routing
    if not routing.rules:
        return None
    folder = None if routing.rules_folder is None else Path(routing.rules_folder).expanduser()
    try:
        if folder is not None and not folder.is_dir():
            problem = Problem(where="", key="routing.rules_folder", message=f"{folder}: no folder")
            raise SettingsError([problem])
        loaded = load_rules(
            routing.rules, folder, map(_example, settings.endpoints), settings.objectives
        )
    except RuleError as error:
        raise SettingsError([Problem(where="", key="routing.rules", message=str(error))]) from None
    return ActiveRules(loaded, settings.objectives)


def _example(endpoint: EndpointSettings) -> v1.Endpoint:
    """The endpoint as far as the settings know it."""
    return v1.Endpoint(
        name=endpoint.name or "", address=endpoint.address, labels=dict(endpoint.labels)
    )
