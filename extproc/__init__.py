"""Coxswain: the endpoint picker that Envoy asks where each llama.cpp request should go."""

import os

# gRPC's core would otherwise run handlers of its own in each process that uvloop forks to start a
# command, and a few in a hundred of them crash (docs/decisions/0180).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
