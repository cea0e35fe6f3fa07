"""The admin service and reflection over gRPC."""

from extproc.admin.dependencies import AdminDependencies
from extproc.admin.reflection import add_reflection
from extproc.admin.service import AdminService
