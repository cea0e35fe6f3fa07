"""Coxswain: the endpoint picker that Envoy asks where each llama.cpp request should go."""

import gc
import os

# uvloop starts a command by fork and exec (docs/decisions/0180). In the forked process gRPC's core
# would run handlers of its own, which crash a few in a hundred, and the collector could end objects
# whose threads are not there, for which gRPC waits for ever.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)
