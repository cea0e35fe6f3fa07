"""Builds a running endpoint picker from the settings."""

from extproc.app.ports import ListenError
from extproc.app.serve import serve
from extproc.app.service import Service
