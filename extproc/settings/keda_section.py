"""Settings of the port for KEDA."""

from extproc.settings.security_section import PortTlsSettings
from extproc.settings.values import Bind


class KedaSettings(PortTlsSettings):
    """KEDA's external scaler: reports how many servers each model needs. See docs/scaling.md."""

    listen: Bind | None = None
    """The address of the port that KEDA connects to, such as 0.0.0.0:9004. KEDA sends no token:
    without client_ca_file anyone who can reach the port can read these numbers, and nothing else.
    Without it, the port is closed."""
