"""A process that a supervisor starts: it says that it has started, and repeats each order.

With `silent` in its command it says nothing. It ends with its supervisor, or when it is told to.
"""

import json
import socket
import sys


def main() -> None:
    with socket.socket(fileno=int(sys.argv[-1])) as control:
        if "silent" not in sys.argv:
            control.send(json.dumps({"is": "started"}).encode())
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 256 * 1024, 2)
            if not data:
                return
            order = json.loads(data)
            control.send(
                json.dumps({"is": "got", "order": order | {"sockets": len(descriptors)}}).encode()
            )
            if order["do"] in {"stop", "leave"}:
                return


if __name__ == "__main__":
    main()
