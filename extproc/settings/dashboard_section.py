"""What the dashboard links to."""

from extproc.settings.section import Section
from extproc.settings.values import WebUrl


class DashboardSettings(Section):
    """Links of the dashboard to other tools. Viewers' browsers open them, the picker does not."""

    grafana_url: WebUrl | None = None
    """The address of Grafana, http:// or https://. Without it, the dashboard has no such link."""
    jaeger_url: WebUrl | None = None
    """The address of Jaeger, http:// or https://. Without it, the dashboard has no such link."""
