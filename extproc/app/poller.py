"""gRPC's poller: the thread that brings the event loop what happened on the network.

Each event wakes it. On few cores that takes the processor from the event loop in the middle of
its work, eight times an exchange; what it brings would have waited for that work anyway.
"""

import logging
import os
import sys
import threading

import grpc

log = logging.getLogger("coxswain.service")


def start_poller() -> None:
    """Start the poller so that its waking interrupts nobody: Linux's batch scheduling.

    It runs at once on a core that has nothing to do. Call it before any other use of grpc.aio; a
    poller that runs already stays as it is, and so it does where the system does not allow this.
    """
    before = set(threading.enumerate())
    grpc.aio.init_grpc_aio()
    if sys.platform != "linux":
        return
    for thread in set(threading.enumerate()) - before:
        try:
            os.sched_setscheduler(thread.native_id or 0, os.SCHED_BATCH, os.sched_param(0))
        except OSError as error:
            log.debug("the poller thread keeps its default scheduling: %s", error)
