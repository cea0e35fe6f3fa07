"""The keepers' gRPC service on the admin port: models of machines, and their logs."""

from extproc.admin.keepers.service import SERVICE, KeepersDependencies, KeepersService
