"""The admin service, health and reflection over gRPC."""

from extproc.admin.dependencies import AdminDependencies, Reloaded
from extproc.admin.health import Health
from extproc.admin.reflection import add_reflection
from extproc.admin.service import AdminService

__all__ = [
    "AdminDependencies",
    "AdminService",
    "Health",
    "Reloaded",
    "add_reflection",
]
