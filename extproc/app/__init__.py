"""The one place that wires everything: settings in, a running endpoint picker out."""

from __future__ import annotations

from extproc.app.serve import serve
from extproc.app.service import ListenError, Service

__all__ = ["ListenError", "Service", "serve"]
